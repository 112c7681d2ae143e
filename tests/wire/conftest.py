"""Property tests have no deadline an example: on a busy machine that would test the machine."""

from hypothesis import settings

settings.register_profile("busy machine", deadline=None)
settings.load_profile("busy machine")
