"""What all tests share: examples by Hypothesis may take their time, since machines are busy."""

import os

# Some virtual machines announce AMX, and end a process that uses it, as bfloat16 does. Before
# torch is imported.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")

from hypothesis import settings

settings.register_profile("unhurried", deadline=None)
settings.load_profile("unhurried")
