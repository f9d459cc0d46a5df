"""The app: a name and its consumers."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, Unpack

from keepfast.app.options import Consumer, ConsumerOptions, Middleware
from keepfast.core.errors import ConfigError
from keepfast.decode.signature import ProviderShape, inspect_handler, inspect_provider
from keepfast.engine.context import BatchContext, Context, RawRecord
from keepfast.engine.hooks import Hook, check_event_types, hook_of
from keepfast.redact.sensitive import CardNumbers

if TYPE_CHECKING:
    from keepfast.core.events import Event, Observer
    from keepfast.settings import Settings

F = TypeVar("F", bound=Callable[..., Any])
M = TypeVar("M", bound=Middleware)


class App:
    """A set of consumers that start, run and stop together.

    `settings` are app-wide sections in code, such as `kafka={"brokers": "…"}` or, where a section has one main setting,
    that alone: `spool="file:///var/spool/payments"`. Environment and files go before them. Nothing happens until `run`.
    """

    def __init__(self, name: str, **settings: Mapping[str, Any] | str) -> None:
        self.name = name
        self.consumers: dict[str, Consumer] = {}
        self.hooks: list[Hook] = []
        self._settings = settings
        self._middleware: list[ProviderShape] = []

    def middleware(self, function: M) -> M:
        """Run this generator around each call of each consumer's handler; the first that is registered is the
        outermost. A batch is one call.

        It yields once. What the handler raises is raised there, and must go on or be replaced by another exception. It
        may take the context (`Context | BatchContext` in an app with handlers of both kinds), resources and providers.
        A plain generator works around handlers of both kinds, an async one around `async def` handlers only. The
        record is finished after it has ended, and an exception from it fails the attempt as one of the handler does.
        Raises ConfigError for a function that does not yield.
        """
        self._middleware.append(inspect_provider(function, "middleware"))
        return function

    def consumer(
        self,
        *topics: str,
        name: str | None = None,
        sensitive: CardNumbers | None = None,
        middleware: Sequence[Middleware] = (),
        filter: Callable[[RawRecord], object] | None = None,  # noqa: A002 - what everybody calls it
        **options: Unpack[ConsumerOptions],
    ) -> Callable[[F], F]:
        """Make the function below consume these topics. It stays an ordinary function that you can call and test.

        Its group is `<app>.<name>`, its name that of the function by default. `rules` classify errors before the
        built-in ones do (`{TimeoutError: "discard", "http:409": "retryable"}`, or a list of `Rule`), `retries` how
        often and when single errors are tried again (`{"http:429": RetryPolicy(…), MyError: "financial"}`). A record in
        which `sensitive` finds something is discarded before the handler sees it. One for which `filter` returns
        something false is finished before it is decoded: counted, not logged, and the handler does not see it.
        `middleware` is around this handler alone, inside of the app's. Raises ConfigError for a function that cannot be
        a handler.
        """

        if not all(isinstance(topic, str) for topic in topics):
            raise ConfigError(
                "@app.consumer takes the names of topics, one by one, in brackets of its own:"
                ' @app.consumer("orders.payment.v1"), or @app.consumer("a", "b").'
            )

        if filter is not None and not _is_plain(filter):
            raise ConfigError(f"filter of @app.consumer must be a plain function of a RawRecord; got {filter!r}")

        def register(function: F) -> F:
            shape = inspect_handler(function, context_type=Context, batch_context_type=BatchContext)
            own = name or shape.name
            if own in self.consumers:
                raise ConfigError(f"App {self.name!r} has two consumers named {own!r}; give one of them name=….")
            around = tuple(inspect_provider(one, "middleware") for one in middleware)
            self.consumers[own] = Consumer(own, function, shape, topics, options, sensitive, around, filter)
            return function

        return register

    def on(self, *events: type[Event]) -> Callable[[F], F]:
        """Call the function below with each event of these types, of every consumer of the app.

        A hook learns what happened and changes nothing: `def` hooks run one after another on a thread of their own,
        `async def` hooks on the event loop of the handlers, and what they raise is logged. Up to 10,000 events wait for
        each kind; further ones are counted and dropped. At the end of the app hooks have 2 s for the last events. A
        base class (`RecordEvent`, `Event`) stands for all its events but `RunFinished` and `Committed`, which have to
        be named. Raises ConfigError for what is no type of event, and for a function that does not take one.
        """
        check_event_types(events)

        def register(function: F) -> F:
            self.hooks.append(hook_of(function, events))
            return function

        return register

    def settings(
        self, *, environ: Mapping[str, str] | None = None, cwd: Path | None = None, for_tests: bool = False
    ) -> Settings:
        """The settings that hold for this app here and now. `for_tests`: without `.env`, and without what
        `keepfast.toml` says about brokers and the host. Raises ConfigError with every problem.
        """
        from keepfast.settings import AppSpec, load  # a third of what importing App would cost

        consumers = {
            consumer.name: {**consumer.options, **({"topics": list(consumer.topics)} if consumer.topics else {})}
            for consumer in self.chosen()
        }
        batches = [consumer.name for consumer in self.chosen() if consumer.shape.batch]
        spec = AppSpec(name=self.name, settings=self._settings, consumers=consumers, batches=batches)
        environ = os.environ if environ is None else environ
        return load(spec, environ=environ, cwd=cwd or Path.cwd(), for_tests=for_tests)

    def chosen(self, only: Sequence[str] = ()) -> list[Consumer]:
        """All consumers, or those named, with the app's middleware. Raises ConfigError for unknown names, or if there
        are none at all.
        """
        if not self.consumers:
            raise ConfigError(f'App {self.name!r} has no consumers; decorate a function with @app.consumer("topic").')
        unknown = [name for name in only if name not in self.consumers]
        if unknown:
            names, known = ", ".join(map(repr, unknown)), ", ".join(self.consumers)
            raise ConfigError(f"App {self.name!r} has no consumer named {names}; it has {known}.")
        return [
            replace(consumer, middleware=(*self._middleware, *consumer.middleware))
            for name, consumer in self.consumers.items()
            if not only or name in only
        ]

    def run(
        self,
        *,
        only: Sequence[str] = (),
        settings: Settings | None = None,
        wait: bool = False,
        supervisor_stops: Callable[[], bool] = lambda: False,
        observers: Sequence[Observer] = (),
    ) -> int:
        """Run until a signal, a verdict or a failure ends it; returns the exit code.

        Raises ConfigError or StartError before anything has started. `wait`: for ever, not 30 s, for a broker that is
        away. `supervisor_stops`: whether a signal came because the whole of `--processes` is stopped. `observers`: for
        keepfast's own commands.
        """
        from keepfast.app.assembly import assemble_app, specs_of
        from keepfast.http.local_app import AppServer

        settings = settings or self.settings()
        specs = specs_of(self.chosen(only), settings)  # what is wrong in the code is reported before anything is served
        with AppServer(settings) as serving:
            assembly = assemble_app(
                specs,
                settings,
                wait=wait,
                supervisor_stops=supervisor_stops,
                observers=observers,
                hooks=self.hooks,
            )
            serving.attach(assembly)
            return assembly.run()


def _is_plain(function: Any) -> bool:
    """Whether a call of it returns its result: a coroutine function would return something true, always."""
    return callable(function) and not inspect.iscoroutinefunction(function)
