"""Standstills of Locust and Python are gone, and Locust does the same as before."""

from __future__ import annotations

import subprocess
import sys

SCRIPT = """
import sys
import locust, locust.argument_parser, locust.runners
fresh = locust.argument_parser.default_args_dict()
import locust_llm.plugin
from locust.env import Environment
assert locust.argument_parser.default_args_dict() is locust.argument_parser.default_args_dict()
assert set(fresh) <= set(locust.argument_parser.default_args_dict())
assert sys.getswitchinterval() < 0.001

class Idle(locust.User):
    @locust.task
    def nothing(self):
        import gevent
        gevent.sleep(0.01)

environment = Environment(user_classes=[Idle])
runner = environment.create_local_runner()
runner.start(2, 2, wait=True)
runner.greenlet.join(timeout=0.2)
runner.stop()
assert runner.state == "stopped" and runner.user_count == 0
runner.quit()
print("ok")
"""


def test_a_test_still_stops_and_options_stay_the_same_and_a_computing_thread_is_interrupted_soon():
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout.strip().splitlines()[-1:] == ["ok"], done.stderr
