"""What is around a handler: middleware, providers, and resources of the app.

Where each argument comes from is decided before the consumer starts. At a call there is a list of values: the decoded
value, the context, resources, and what providers have given so far. Steps are taken in order, each of which calls a
function with some of the values: middleware, decoding, providers, the handler. Then generators among them are resumed
in reverse order, and after the last one the record is finished.

The steps are one coroutine for handlers of both kinds. Around a plain function nothing in it waits, so it runs to its
end where it is started.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from operator import itemgetter
from types import UnionType
from typing import Any, Final, NamedTuple, Union, get_args, get_origin, get_type_hints

from keepfast.core.errors import Abandoned, ConfigError, Halt, MiddlewareError
from keepfast.core.runs import Run
from keepfast.decode.signature import HandlerShape, Parameter, ProviderShape, inspect_provider
from keepfast.engine.context import BatchContext, Context
from keepfast.engine.inbox import SKIPPED, CallTransaction, ConsumerInbox, async_transaction, plain_transaction

Values = list[Any]
Overrides = Mapping[Callable[..., Any], Callable[..., Any]]
"""Providers, and the functions in their place."""
Settle = Callable[[Run, BaseException | None], Coroutine[Any, Any, None]]
"""Waits until what was sent is answered; raises the error of a send in place of the error that it gets."""

SUBJECT, CONTEXT, VALUE, UNUSED, RUN, TRANSACTION = range(6)
"""Places in the list of values. The subject is the message, or the selection of a batch."""
_ENDED: Final = object()


LATER: Final = object()
"""In place of resources, before there are any: parameters that may become one are not looked at."""


@dataclass(frozen=True, slots=True)
class Around:
    """What an app puts around the handler of a consumer: its middleware, the outermost first, what its lifespan
    yielded (or LATER), functions that replace providers in a test, and the consumer's inbox.
    """

    middleware: Sequence[ProviderShape] = ()
    resources: Any = None
    overrides: Overrides = dataclasses.field(default_factory=dict)
    inbox: ConsumerInbox | None = None

    def is_around(self, shape: HandlerShape) -> bool:
        """Whether it has anything to do for this handler."""
        return bool(self.middleware or shape.others or self.inbox is not None)


# -- resources


class Resource(NamedTuple):
    """Something that lives as long as the app. `declared` is its type in the code, as far as there is one."""

    label: str
    declared: Any
    value: Any


def resources_in(yielded: Any) -> list[Resource]:
    """The object that a lifespan yielded, its fields if it is a dataclass, its values if it is a mapping. A mapping may
    have types as keys: those of its values.
    """
    if yielded is None:
        return []
    kind = type(yielded)
    found = [Resource(kind.__name__, kind, yielded)]
    if dataclasses.is_dataclass(yielded):
        declared: dict[str, Any] = {}
        with suppress(Exception):  # names for type checkers only: the values have types, too
            declared = get_type_hints(kind)
        for field in dataclasses.fields(yielded):
            value = getattr(yielded, field.name, None)
            found.append(Resource(f"{kind.__name__}.{field.name}", declared.get(field.name, type(value)), value))
    elif isinstance(yielded, Mapping):
        for key, value in yielded.items():
            found.append(Resource(f"[{_name_of(key)}]", key if isinstance(key, type) else type(value), value))
    return found


def resource_of(annotation: Any, resources: Sequence[Resource]) -> list[Resource]:
    """Those of exactly this type: as declared, or else by the class of the value. More than one: it is ambiguous."""
    declared = [one for one in resources if one.declared == annotation]
    plain = _plain(annotation)
    found = declared or [one for one in resources if type(one.value) is plain or one.declared is plain]
    return found if len({id(one.value) for one in found}) > 1 else found[:1]


# -- before the consumer starts


@dataclass(frozen=True, slots=True)
class CallStep:
    """A function on the way to the handler, which gets some of the values. What it gives goes to `slot`."""

    where: str
    call: Callable[[Values], Any]
    slot: int = UNUSED
    is_async: bool = False
    is_generator: bool = False


@dataclass(frozen=True, slots=True)
class Composition:
    """The steps of a call, and the values at its beginning."""

    steps: Sequence[CallStep]
    """The last one is the handler."""
    values: Values
    takes_context: bool


def compose(
    function: Callable[..., Any], shape: HandlerShape, decode: Callable[[Any], Any], around: Around
) -> Composition:
    """Raises ConfigError with each parameter that cannot be filled."""
    composer = _Composer(shape, around)
    for middleware in around.middleware:
        composer.add_middleware(middleware)
    composer.steps.append(CallStep("decoding", lambda values: decode(values[SUBJECT].value()), VALUE))
    composer.add_handler(function)
    if composer.problems:
        raise ConfigError(*composer.problems)
    return Composition(tuple(composer.steps), composer.values, composer.takes_context)


def takes_transaction(shape: HandlerShape, inbox: ConsumerInbox) -> bool:
    """Whether the handler has a parameter for the inbox's transaction."""
    return any(_plain(one.annotation) is inbox.inbox.transaction for one in shape.parameters)


class _Composer:
    """Collects the steps of one handler's call, and what is wrong with them."""

    def __init__(self, shape: HandlerShape, around: Around) -> None:
        self._shape = shape
        self._overrides = around.overrides
        self._later = around.resources is LATER
        self._resources = [] if self._later else resources_in(around.resources)
        self._slots: dict[Any, int] = {}  # of providers; those that are being looked at have none yet
        self._path: list[Any] = []
        self._inbox = around.inbox
        self.values: Values = [None] * (TRANSACTION + 1)
        self.steps: list[CallStep] = []
        self.problems: list[str] = []
        self.takes_context = False
        self._within = False  # whether what is looked at now is called within the transaction of the inbox

    def add_middleware(self, shape: ProviderShape) -> None:
        where = f"middleware {shape.name}()"
        call = self.call_of(shape.function, shape.parameters, where)
        if shape.is_async and not self._shape.is_async:
            self.problems.append(
                f"{where} is an async generator, but handler {self._shape.name}() is a plain function; make the"
                " middleware a plain generator, which works around both kinds, or the handler async def"
            )
        self.steps.append(CallStep(where, call, is_async=shape.is_async, is_generator=True))

    def add_handler(self, function: Callable[..., Any]) -> None:
        shape = self._shape
        where = f"handler {shape.name}()"
        self._within = True
        call = self.call_of(function, shape.parameters, where, value=shape.value)
        if self._inbox is not None:
            self._add_transaction(self._inbox)
            call = _unless_skipped(call, is_async=shape.is_async)

        def call_plain(values: Values) -> None:
            result = call(values)
            if result is not None:
                refuse_awaitable(result)

        self.steps.append(CallStep(where, call if shape.is_async else call_plain, is_async=shape.is_async))

    def _add_transaction(self, inbox: ConsumerInbox) -> None:
        transaction = async_transaction if inbox.is_async else plain_transaction

        def begin(values: Values) -> Any:
            return transaction(inbox, values[SUBJECT], values[RUN], lambda call: _narrow(values, call))

        where = f"inbox {type(inbox.inbox).__name__}"
        self.steps.append(CallStep(where, begin, TRANSACTION, inbox.is_async, is_generator=True))

    def call_of(
        self, function: Callable[..., Any], parameters: Sequence[Parameter], where: str, value: str | None = None
    ) -> Callable[[Values], Any]:
        """The call with arguments from the values; steps that provide those are added. `value` is the name of the
        parameter that takes the value of the record.
        """
        places: list[tuple[Parameter, int]] = []
        for one in parameters:
            try:
                slot = VALUE if one.name == value else self._slot_of(one, f"{where}, parameter {one.name!r}")
                places.append((one, slot))
            except ConfigError as error:
                self.problems.extend(error.problems)
        by_name = [(one.name, slot) for one, slot in places if one.by_name]
        slots = [slot for one, slot in places if not one.by_name]
        if by_name:
            return lambda values: function(
                *[values[slot] for slot in slots], **{name: values[slot] for name, slot in by_name}
            )
        if not slots:
            return lambda _: function()
        if len(slots) == 1:
            [only] = slots
            return lambda values: function(values[only])
        chosen = itemgetter(*slots)
        return lambda values: function(*chosen(values))

    def _slot_of(self, parameter: Parameter, where: str) -> int:
        if self._is_context(parameter, where):
            self.takes_context = True
            return CONTEXT
        if parameter.provider is not None:
            return self._provided(self._overrides.get(parameter.provider, parameter.provider))
        if self._inbox is not None and _plain(parameter.annotation) is self._inbox.inbox.transaction:
            if self._within:
                return TRANSACTION
            raise ConfigError(f"{where}: the transaction begins after middleware and providers; take it in the handler")
        return self._resource(parameter, where)

    def _is_context(self, parameter: Parameter, where: str) -> bool:
        annotation = parameter.annotation
        kinds = get_args(annotation) if get_origin(annotation) in (Union, UnionType) else (annotation,)
        if not {Context, BatchContext}.intersection(one for one in kinds if isinstance(one, type)):
            return False
        wanted = BatchContext if self._shape.batch else Context
        if wanted not in kinds:
            raise ConfigError(
                f"{where}: handler {self._shape.name}() takes {'a batch' if self._shape.batch else 'one record'};"
                f" annotate it with {wanted.__name__}, or with Context | BatchContext if it is around both kinds"
            )
        return True

    def _provided(self, provider: Callable[..., Any]) -> int:
        """The slot of what it provides. It is called once, however many take it."""
        if provider in self._slots:
            return self._slots[provider]
        shape = inspect_provider(provider, "provider")
        where = f"provider {shape.name}()"
        if provider in self._path:
            names = [inspect_provider(one, "provider").name for one in [*self._path, provider]]
            raise ConfigError(f"{where} needs itself: {' → '.join(names)}; remove that parameter from one of them")
        self._path.append(provider)
        within, self._within = self._within, False
        call = self.call_of(shape.function, shape.parameters, where)
        self._within = within
        self._path.pop()
        slot = self._slots[provider] = len(self.values)
        self.values.append(None)
        if not shape.is_async and not shape.is_generator:
            call = _refusing_coroutines(call, where)
        self.steps.append(CallStep(where, call, slot, shape.is_async, shape.is_generator))
        if shape.is_async and not self._shape.is_async:
            raise ConfigError(
                f"{where} is async, but handler {self._shape.name}() is a plain function; make the handler async def,"
                " or the provider a plain function"
            )
        return slot

    def _resource(self, parameter: Parameter, where: str) -> int:
        if self._later and parameter.annotation is not inspect.Parameter.empty:
            return UNUSED
        found = resource_of(parameter.annotation, self._resources)
        if len(found) == 1:
            self.values.append(found[0].value)
            return len(self.values) - 1
        name = _name_of(parameter.annotation)
        if found:
            raise ConfigError(
                f"{where}: several resources are of type {name} ({', '.join(one.label for one in found)}); take"
                f" {self._resources[0].label} instead, or Annotated[{name}, Provide(…)] with a function that returns"
                " the one"
            )
        raise ConfigError(f"{where}: {self._missing(parameter, name)}")

    def _missing(self, parameter: Parameter, name: str) -> str:
        context = BatchContext if self._shape.batch else Context
        if parameter.annotation is inspect.Parameter.empty:
            problem = f"it has no annotation, such as {context.__name__}, so what to pass is unknown"
        else:
            problem = f"nothing provides {name}"
        have = [context.__name__]
        if self._inbox is not None:
            have.append(f"{_name_of(self._inbox.inbox.transaction)} (the inbox's transaction)")
        have += [f"{_name_of(one.declared)} ({one.label})" for one in self._resources]
        none = "" if self._later else ", and the app has no resources"
        known = f"there are {', '.join(have)}" if len(have) > 1 else f"there is {have[0]}{none}"
        return (
            f"{problem}; {known}. Let the app's lifespan yield it, annotate with Annotated[…, Provide(function)], or"
            " make the parameter keyword-only with a default"
        )


def providers_in(parameters: Sequence[Parameter]) -> set[Callable[..., Any]]:
    """The providers of these parameters, and those that they take in turn."""
    found: set[Callable[..., Any]] = set()
    left = [one.provider for one in parameters]
    while left:
        provider = left.pop()
        if provider is not None and provider not in found:
            found.add(provider)
            left += [one.provider for one in inspect_provider(provider, "provider").parameters]
    return found


def _plain(annotation: Any) -> Any:
    """Without what stands in its brackets."""
    return get_origin(annotation) or annotation


def _name_of(annotation: Any) -> str:
    return annotation.__name__ if isinstance(annotation, type) else repr(annotation).replace("typing.", "")


# -- a call


def around_async(
    composition: Composition,
    context_for: Callable[[Any, Run], Any] | None,
    settle: Settle,
    *,
    at_once: bool = False,
) -> Callable[[Any, Run], Coroutine[Any, Any, None]]:
    """The call of a handler with all that is around it. `context_for` makes the context, if anything takes it.
    `at_once`: nothing awaits the coroutine, and a StopIteration is carried out of it.

    What was sent is answered before each generator continues: a transaction that is committed there may say that the
    record is done, and a send that failed would never be repeated.
    """
    steps, values_at_first = composition.steps, composition.values

    async def handle_around(subject: Any, run: Run) -> None:  # noqa: PLR0912 - a function in between costs each record
        values = values_at_first.copy()
        values[SUBJECT] = subject
        values[RUN] = run
        if context_for is not None:
            values[CONTEXT] = context_for(subject, run)
        opened: list[tuple[CallStep, Any]] = []
        try:
            for step in steps:
                given = made = step.call(values)
                if step.is_generator:
                    given = await anext(made, _ENDED) if step.is_async else next(made, _ENDED)
                    if given is _ENDED:
                        raise MiddlewareError(f"{step.where} did not yield; it must yield once, or nothing is called")
                    opened.append((step, made))
                elif step.is_async:
                    given = await made
                values[step.slot] = given
            while opened:
                if run.sends is not None:
                    await settle(run, None)
                if run.abandoned:
                    raise Abandoned("the record has timed out, so nothing that was done for it counts; roll it back")
                step, made = opened.pop()
                if (await anext(made, _ENDED) if step.is_async else next(made, _ENDED)) is not _ENDED:
                    raise await _unfinished(step, made, None)
            if run.sends is not None:
                await settle(run, None)
        except BaseException as error:  # noqa: BLE001 - raised again, or what took its place
            outcome = await _left(opened, error, run, settle)
            try:
                if at_once and isinstance(outcome, StopIteration):
                    raise _StopIterationRaised(outcome)
                if outcome is error:
                    raise
                raise outcome
            finally:
                del outcome  # its traceback has this frame

    return handle_around


def around_sync(
    composition: Composition,
    context_for: Callable[[Any, Run], Any] | None,
    settle: Callable[[Run, BaseException | None], None],
) -> Callable[[Any, Run], None]:
    """As `around_async`, for a plain function: nothing waits but `settle`, which blocks."""

    async def settled(run: Run, error: BaseException | None) -> None:
        settle(run, error)

    start = around_async(composition, context_for, settled, at_once=True)

    def handle_at_once(subject: Any, run: Run) -> None:
        try:
            start(subject, run).send(None)
        except StopIteration:
            return
        except _StopIterationRaised as raised:
            error = raised.error
        else:
            raise AssertionError("something around a plain function waits")  # refused when the call was composed
        raise error

    return handle_at_once


class _StopIterationRaised(Exception):
    """Carries a StopIteration of the user's code out of a coroutine, which would make a RuntimeError of it."""

    def __init__(self, error: StopIteration) -> None:
        super().__init__(str(error))
        self.error = error


async def _left(opened: list[tuple[CallStep, Any]], error: BaseException, run: Run, settle: Settle) -> BaseException:
    """Raise the error in the generators that are still open, in reverse order. Returns what the attempt fails with: the
    error, or what took its place.
    """
    while True:
        if run.sends is not None:
            error = await _settled(run, error, settle)
        if not opened:
            return error
        error = await _thrown(*opened.pop(), error)


async def _settled(run: Run, error: BaseException, settle: Settle) -> BaseException:
    try:
        await settle(run, error)
    except BaseException as failure:  # noqa: BLE001 - it is the outcome of the attempt
        return failure
    return error


async def _thrown(step: CallStep, generator: Any, error: BaseException) -> BaseException:
    """What the attempt fails with after the error was raised in the generator."""
    trace = error.__traceback__
    try:
        await generator.athrow(error) if step.is_async else generator.throw(error)
    except (StopIteration, StopAsyncIteration):
        if isinstance(error, Halt) or not isinstance(error, Exception):
            return error
        problem = f"suppressed {type(error).__name__}, so the record would count as processed; raise it again"
        return _broken(step, problem, error)
    except BaseException as raised:  # noqa: BLE001 - it is the outcome of the attempt
        if raised is not error and not _stands_for(raised, error):
            return raised
        error.__traceback__ = trace  # without the way through the generator
        return error
    return await _unfinished(step, generator, error)


async def _unfinished(step: CallStep, generator: Any, error: BaseException | None) -> MiddlewareError:
    with suppress(Exception):
        await generator.aclose() if step.is_async else generator.close()
    return _broken(step, "yielded twice; it must yield once", error)


def _stands_for(raised: BaseException, error: BaseException) -> bool:
    """A generator that lets StopIteration pass raises RuntimeError from it."""
    return isinstance(error, StopIteration | StopAsyncIteration) and raised.__cause__ is error


def _broken(step: CallStep, problem: str, error: BaseException | None) -> MiddlewareError:
    broken = MiddlewareError(f"{step.where} {problem}")
    broken.__cause__ = error
    return broken


def _refusing_coroutines(call: Callable[[Values], Any], where: str) -> Callable[[Values], Any]:
    """The call of a plain function whose result is handed on, unless it is a coroutine, which nothing would await."""

    def call_plain(values: Values) -> Any:
        result = call(values)
        if inspect.iscoroutine(result):
            refuse_awaitable(result, where, "make it async def, and the handler, too")
        return result

    return call_plain


def _unless_skipped(call: Callable[[Values], Any], *, is_async: bool) -> Callable[[Values], Any]:
    """Not if all records of the call were processed before."""

    def call_plain(values: Values) -> Any:
        return None if values[TRANSACTION] is SKIPPED else call(values)

    async def call_async(values: Values) -> None:
        if values[TRANSACTION] is not SKIPPED:
            await call(values)

    return call_async if is_async else call_plain


def _narrow(values: Values, call: CallTransaction) -> None:
    """The handler gets those records of a batch that are new."""
    values[VALUE] = call.narrowed(values[VALUE])
    values[CONTEXT] = call.context(values[CONTEXT])


def refuse_awaitable(result: object, where: str = "the handler", what_to_do: str = "make it async def") -> None:
    """A `def` that returns a coroutine or a generator has done nothing yet: that must not count. Raises Halt."""
    if inspect.isgenerator(result) or inspect.isasyncgen(result):
        raise Halt(f"{where} returned a generator, so nothing ran; remove `yield`, and return when done")
    if inspect.isawaitable(result):
        if inspect.iscoroutine(result):
            result.close()
        raise Halt(f"{where} is a plain function that returned an awaitable, so nothing ran; {what_to_do}")
