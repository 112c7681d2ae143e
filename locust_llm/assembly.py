"""From settings to what each User class needs: its target and its workload. The same on every node.

A class's own ``host``, ``model``, ``api`` and ``headers`` override the options; classes that agree share a target and
so a connection pool and a dialect.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import gevent

from .address import Address, parse_address
from .errors import UsageError
from .exchange import WARMUP
from .load.arrivals import pacers_of
from .load.prewarm import connections_of
from .load.prewarm import prewarm as open_connections
from .load.schedule import Share
from .load.warming import warm_up as send_warmup
from .preflight import call_for, describe, find_model, first_contact
from .run import Run
from .settings import Settings
from .target import Facts, Target, api_for, facts_from_json, facts_to_json
from .tokens import Tokenizer, load_tokenizer
from .wire.api import Call
from .workload.calibration import Calibration, approximate
from .workload.costs import calibrated_costs, tokenizer_costs
from .workload.promptfile import PromptFile
from .workload.prompts import Prompt, Workload
from .workload.synthetic import SyntheticWorkload

if TYPE_CHECKING:
    from .users import LLMUser


@dataclass(frozen=True, slots=True)
class Spec:
    """What makes a target: two classes with equal specs share one."""

    address: Address
    api: str
    model: str
    headers: tuple[tuple[str, str], ...]

    @property
    def key(self) -> str:
        """Name under which facts travel and appear in the run card; holds no header value."""
        return f"{self.address.url()} {self.api} {self.model}".strip()


@dataclass(frozen=True, slots=True)
class Source:
    """Prompts for one User class: workload, source of their lengths, and whether answers have an exact length."""

    workload: Workload
    length_source: str | None
    exact: bool


def llm_classes(user_classes: Iterable[type]) -> list[type[LLMUser]]:
    """Return the User classes that talk to a model."""
    from .users import LLMUser

    return [cls for cls in user_classes if issubclass(cls, LLMUser)]


def spec_of(user_class: type[LLMUser], host: str | None, settings: Settings) -> Spec:
    """Return the target a class wants.

    Raises:
        UsageError: there is no host, or it is no address.
    """
    url = host or user_class.host
    if not url:
        raise UsageError("no server to test: give --host http://…, or --llm-simulate for the embedded simulated server")
    api = api_for(user_class.request_type, settings, user_class.api)
    return Spec(
        parse_address(url, api.root),
        api.name,
        user_class.model or settings.model,
        tuple(user_class.headers.items()),
    )


def target_of(run: Run, spec: Spec) -> Target:
    """Return the run's target for a spec, made at first use."""
    target = run.targets.get(spec)
    if target is None:
        target = run.targets[spec] = Target(
            spec.address, api_for("", run.settings, spec.api), run.settings, spec.headers
        )
        facts = run.facts.get(spec.key)
        target.learn(facts_from_json(facts) if facts else Facts(model=spec.model))
    return target


def contact_all(run: Run, classes: list[type[LLMUser]], host: str | None, say: Callable[[str], None]) -> dict[str, Any]:
    """Make first contact with every target of these classes; returns the facts by key, as JSON.

    Raises:
        UsageError: a target cannot serve.
    """
    facts: dict[str, Any] = {}
    for spec in {spec_of(cls, host, run.settings): None for cls in classes}:
        target = target_of(run, spec)
        if run.settings.preflight:
            found = first_contact(run, target, spec.model, run.seed, say)
            say(f"preflight: {describe(target, found)}")
        elif spec.model:
            found = Facts(model=spec.model)
        else:
            found = find_model(target, "")
        target.learn(found)
        facts[spec.key] = facts_to_json(found)
    return facts


def prepare_prompts(run: Run, classes: list[type[LLMUser]], host: str | None, worker: int, workers: int) -> None:
    """Make the prompts of all classes ready, in a thread: reading files and tokenizing take long and can fail.

    Args:
        worker: index of this process among the ``workers`` that share the load.

    Raises:
        UsageError: a file or tokenizer that is not there or cannot be read.
    """
    targets = [(cls, target_of(run, spec_of(cls, host, run.settings))) for cls in classes]

    def make() -> None:
        if run.settings.tokenizer:
            run.tokenizer = _tokenizer(run.settings.tokenizer)
        for number, (cls, target) in enumerate(targets):
            # Classes that read the same prompt file share its lines out like further workers would.
            share = (worker * len(targets) + number, workers * len(targets))
            run.sources[cls] = _make_source(run, cls, target, worker, share)

            if run.settings.warmup:
                call = _warmup_call(run, cls, target, worker)
                run.warmup_sources.append((target, call))

    run.warmup_sources.clear()
    _in_thread(make)


def warm_up(run: Run, classes: list[type[LLMUser]], users: int, share: Share, say: Callable[[str], None]) -> None:
    """Send this process's share of the warm-up, for all these classes in turn. ``users``: of all processes.

    Raises:
        UsageError: no exchange of it ended well.
    """
    if run.settings.warmup:
        pacers = pacers_of(run.settings, classes)
        run.warm_s = send_warmup(run, run.warmup_sources, next(iter(pacers.values()), None), users, share, say)


def prewarm(run: Run, classes: list[type[LLMUser]], users: int, share: Share) -> None:
    """Open this process's connections, one for each user it will have. ``users``: of all processes."""
    by_key: dict[str, list[type[LLMUser]]] = {}
    targets: dict[str, Target] = {}
    for cls in classes:
        spec = spec_of(cls, run.host, run.settings)
        targets[spec.key] = target_of(run, spec)
        by_key.setdefault(spec.key, []).append(cls)
    wanted = connections_of(by_key, users, share)
    opened = {key: open_connections(targets[key].transport, count) for key, count in wanted.items() if count}
    run.prewarmed = {run.worker: {key: of.to_json() for key, of in opened.items()}}


# ---- helpers


def _warmup_call(run: Run, cls: type[LLMUser], target: Target, worker: int) -> Callable[[], Call]:
    """Return what makes the next call of the warm-up: synthetic prompts that no measured exchange has."""
    workload = _synthetic(run, cls, target, worker, f"{cls.__name__}/{WARMUP}")
    extra = {**run.settings.extra, **cls.extra_body}
    model = cls.model or target.facts.model
    exact = not run.settings.natural_stop
    return lambda: call_for(run.settings, workload.next(), model, extra, exact)


def _make_source(run: Run, user_class: type[LLMUser], target: Target, worker: int, share: tuple[int, int]) -> Source:
    own, settings = user_class.workload, run.settings
    chat = target.api.request_type == "CHAT"
    if own is not None:
        return Source(_as_workload(own, user_class), None, exact=False)
    if settings.prompts:
        prompts = PromptFile(settings.prompts, seed=run.seed, worker=share[0], workers=share[1], chat=chat)
        return Source(prompts, None, exact=False)
    workload = _synthetic(run, user_class, target, worker, user_class.__name__)
    return Source(workload, workload.source, exact=True)


def _synthetic(run: Run, user_class: type[LLMUser], target: Target, worker: int, stream: str) -> SyntheticWorkload:
    settings, facts = run.settings, target.facts
    chat = target.api.request_type == "CHAT"
    if run.tokenizer is not None:
        costs = tokenizer_costs(run.tokenizer, chat=chat)
    elif facts.tokens_per_word is None or facts.overhead is None:
        costs = calibrated_costs(approximate("the server's token counts are not known", chat=chat))
    else:
        costs = calibrated_costs(Calibration(facts.tokens_per_word, facts.overhead))
    return SyntheticWorkload(
        settings.input_tokens, settings.output_tokens,
        costs=costs, seed=run.seed, worker=worker, stream=stream, chat=chat,
    )  # fmt: skip


@functools.cache
def _tokenizer(name: str) -> Tokenizer:
    return load_tokenizer(name)


class _Cycle:
    """A workload over any iterable of prompts of the user's, from the start again when it ends."""

    def __init__(self, prompts: Iterable[str | Prompt], owner: str) -> None:
        self._prompts = prompts
        self._owner = owner
        self._iterator: Iterator[str | Prompt] = iter(prompts)

    def next(self) -> Prompt:
        prompt = next(self._iterator, None)
        if prompt is None:
            self._iterator = iter(self._prompts)
            prompt = next(self._iterator, None)
            if prompt is None:
                raise UsageError(f"{self._owner}.workload has no prompt (left)")
        return prompt if isinstance(prompt, Prompt) else Prompt(text=prompt)


def _as_workload(own: Any, user_class: type) -> Workload:
    if hasattr(own, "next"):
        workload: Workload = own
        return workload
    if isinstance(own, str) or not isinstance(own, Iterable):
        raise UsageError(f"{user_class.__name__}.workload must be a Workload or an iterable of prompts")
    return _Cycle(own, user_class.__name__)


def _in_thread(work: Callable[[], None]) -> None:
    """Run in gevent's thread pool; raise here what it raises (the pool itself would also print it)."""

    def caught() -> Exception | None:
        try:
            work()
        except Exception as e:
            return e
        return None

    error = gevent.get_hub().threadpool.apply(caught)
    if error is not None:
        raise error
