"""What all tests share: examples by Hypothesis may take their time, since machines are busy."""

from hypothesis import settings

settings.register_profile("unhurried", deadline=None)
settings.load_profile("unhurried")
