"""The command line. Nothing else imports it."""
