"""The client's own health is what really happened in the process."""

from __future__ import annotations

import subprocess
import sys

from locust_llm.transport.loop import Away

SCRIPT = """
import gc, time
import locust, gevent
from locust_llm.telemetry.health import Health

for _ in range(20):  # again, where the machine stood still meanwhile
    gevent.sleep(0.05)
    health = Health()
    gevent.sleep(0.2)
    calm = health.report()
    if calm.cpu < 0.5 and calm.loop_away_max_ms < 60:
        break
    health.stop()
until = time.monotonic() + 0.12
while time.monotonic() < until:
    pass
gevent.sleep(0.01)
gc.collect()
busy = health.report()
health.stop()
gc.collect()
after = health.report()
assert calm.cpu < 0.5 and calm.loop_away_max_ms < 60, calm
assert busy.loop_away_max_ms >= 110, busy
assert busy.loop_late_share > calm.loop_late_share
assert busy.gc_pauses >= 1 and busy.gc_max_ms > 0 and busy.gc_ms >= busy.gc_max_ms
assert after.gc_pauses == busy.gc_pauses
print(sorted(busy.to_json()))
"""


def test_a_standstill_of_the_loop_and_collections_are_seen():
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=60, check=False)
    assert "loop_away_max_ms" in done.stdout, done.stderr


def test_times_away_are_bounded_from_above_by_at_most_twice():
    away = Away()
    for _ in range(99):
        away.add(300_000)
    away.add(50_000_000)
    assert 0.3 <= away.at_most_ms(0.99) <= 0.6
    assert 50.0 <= away.at_most_ms(1.0) <= 100.0
    assert away.max_ns == away.late_ns == 50_000_000
    away.clear()
    assert (away.max_ns, away.late_ns) == (0, 0)
