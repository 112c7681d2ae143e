"""Property tests have no deadline an example or for their data: on a busy machine that would test the machine."""

from hypothesis import HealthCheck, settings

settings.register_profile("busy machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("busy machine")
