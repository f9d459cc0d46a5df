"""`keepfast dlq try`: today's handler on the record of one letter, without effects on Kafka."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from contextlib import redirect_stdout
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from keepfast.cli.connection import connection_options, exit_on_interrupt, reach_options
from keepfast.cli.dlq_options import letter_argument, open_desk
from keepfast.cli.dlq_view import text_of
from keepfast.cli.errors import report_errors
from keepfast.cli.terminal import confirmed
from keepfast.core.errors import ConfigError, KeepfastError
from keepfast.core.records import RecordPlace
from keepfast.deadletters.letter import Letter
from keepfast.desk import Desk, StoredLetter
from keepfast.desk.case_filter import Offsets
from keepfast.desk.masking import frames, masked_text
from keepfast.desk.run import record_of
from keepfast.desk.trials import CapturedSend, TrialReport
from keepfast.telemetry.clean import clean_text, escaped

if TYPE_CHECKING:
    from keepfast.app.trial import TrialResult
    from keepfast.settings import Settings

EXIT_FAILED = 1
TIMEOUT_S = 60.0
REAL = "What the handler sends is captured and the transaction of its inbox is rolled back; its other effects are real"


@click.command(name="try", short_help="Run today's handler on one letter.")
@click.argument("topic")
@letter_argument
@connection_options
@click.option("--consumer", metavar="NAME", help="Whose handler. Default: the consumer that the letter is of.")
@click.option(
    "--timeout", "timeout_s", type=click.FloatRange(0.1), default=TIMEOUT_S, show_default=True, help="In seconds."
)
@click.option("--reveal", is_flag=True, help="Show the error and what would be sent unmasked. This is audited.")
@click.option("--dry-run", is_flag=True, help="Say which handler would run; run nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@click.option("--by", hidden=True, help="Whom the audit names: the page runs this command.")
def try_letter(
    topic: str,
    letter: Offsets,
    target: str | None,
    brokers: str | None,
    *,
    debug: bool,
    consumer: str | None,
    timeout_s: float,
    reveal: bool,
    dry_run: bool,
    as_json: bool,
    yes: bool,
    by: str | None,
) -> None:
    """Run today's handler once on the record of a letter, to see whether it would come through now.

    It runs here, in this process, with the lifespan, middleware and providers of --app, as the code is now. Nothing
    reaches Kafka: what the handler sends is captured, no offset is committed, the case stays as it is. The transaction
    of an inbox is rolled back. All other effects are real: a request to another service is sent, a file is written. So
    it asks first, and it is audited.

    \b
      keepfast dlq try orders.payment.dlq 3:17 --app app:app
      keepfast dlq try orders.payment.dlq 3:17 --app app:app --yes --json

    \b
    Exit codes: 0 it would come through, 1 it fails, 2 usage, 3 broker or topic missing.
    """
    if target is None:
        raise click.UsageError("Name the app whose handler is to run: --app MODULE:APP.")
    place = RecordPlace(topic, letter.partition, letter.start)
    with report_errors(debug=debug), exit_on_interrupt(), open_desk((topic,), target, brokers) as desk:
        acting = desk if by is None else desk.acting_as(by, "page")
        trial = LetterTrial(acting, place, target, consumer)
        if not _agreed(trial, dry_run=dry_run, as_json=as_json, yes=yes):
            return
        code = trial.run(timeout_s, reveal=reveal, as_json=as_json)
    sys.exit(code)


def _agreed(trial: LetterTrial, *, dry_run: bool, as_json: bool, yes: bool) -> bool:
    what = f"Run {trial.consumer} on {trial.record_name}"
    if dry_run and as_json:
        click.echo(json.dumps({"consumer": trial.consumer, "record": trial.record_name, "dry_run": True}))
    elif dry_run:
        click.echo(f"{what}. {REAL}. Dry run: nothing was run.")
    elif yes or confirmed(f"{REAL}.\n{what}?"):
        return True
    else:
        click.echo("Nothing was run.", err=True)
        raise click.exceptions.Exit(EXIT_FAILED)
    return False


class LetterTrial:
    """One letter, and the consumer of the app that its record is for. Raises ConfigError or KeepfastError."""

    def __init__(self, desk: Desk, place: RecordPlace, target: str, consumer: str | None) -> None:
        from keepfast.cli.app_loader import load_app

        self._desk = desk
        self._app = load_app(target, cwd=Path.cwd())
        self._settings = self._app.settings()
        self._stored = _stored(desk, place)
        self.consumer = consumer or consumer_of(self._stored.letter, self._settings)
        self._app.chosen([self.consumer])

    @property
    def record_name(self) -> str:
        letter = self._stored.letter
        return f"{letter.topic or 'the record of an unknown topic'} {letter.partition}:{letter.offset}"

    def run(self, timeout_s: float, *, reveal: bool, as_json: bool) -> int:
        """Run it, and audit how it ended; prints what became of it, and returns the exit code."""
        if reveal:
            self._desk.reveal(self._stored.place)
        name = f"{self._stored.name} with {self.consumer}"
        with self._desk.audited("try", topic=self._stored.place.topic, count=1, what=name) as audited:
            result, report = self._tried(timeout_s, reveal=reveal)
            audited.result = result.outcome if result.failure is None else f"failed: {report.error_type}"
        if as_json:
            click.echo(json.dumps(asdict(report)))
        else:
            self._print(report, result, reveal=reveal)
        return EXIT_FAILED if result.failure is not None else 0

    def _tried(self, timeout_s: float, *, reveal: bool) -> tuple[TrialResult, TrialReport]:
        from keepfast.app.trial import try_record

        letter = self._stored.letter
        facts = self._desk.cluster.topics([letter.topic or ""])[letter.topic or ""] if letter.topic else None
        with redirect_stdout(sys.stderr):  # what the handler prints is not what this command answers
            result = try_record(
                self._app,
                self.consumer,
                record_of(letter),
                settings=self._settings,
                topic_id=(facts.topic_id or "") if facts is not None else "",
                timeout_s=timeout_s,
            )
        return result, report_of(result, letter, self._settings, reveal=reveal)

    def _print(self, report: TrialReport, result: TrialResult, *, reveal: bool) -> None:
        colour = "red" if report.outcome == "failed" else "green"
        click.echo(click.style(report.verdict, fg=colour, bold=True))
        if report.error_type:
            where = f" at {report.place}" if report.place else ""
            click.echo(f"  {escaped(report.error_message, 2_000)}{clean_text(where)}")
            click.echo(f"  {report.kind}, code {report.error_code}, rule {report.rule}. {report.next}")
            for line in report.stack:
                click.echo(f"    {escaped(line, 500)}")
        for sent, captured in zip(report.sent, result.sent, strict=True):
            value = text_of(captured.value) if reveal else clean_text(json.dumps(sent.value), 500)
            click.echo(f"Would have sent to {clean_text(sent.topic)}: {value}")
        rolled_back = " The transaction of its inbox was rolled back." if report.rolled_back else ""
        click.echo(f"Nothing was sent or committed.{rolled_back}")
        if report.outcome == "succeeded":
            place = self._stored.place
            again = f"keepfast dlq replay {place.topic} --offsets {self._stored.name} --dry-run{reach_options()}"
            click.echo(f"To send it back: {again}", err=True)


def _stored(desk: Desk, place: RecordPlace) -> StoredLetter:
    stored = desk.letter(place)
    if stored is None:
        raise KeepfastError(f"There is no letter at {place.partition}:{place.offset} in {place.topic}.")
    return stored


def consumer_of(letter: Letter, settings: Settings) -> str:
    """The consumer that a letter's record is for: by group and topic, else by topic alone. Raises ConfigError."""
    own = [one for one in settings.consumers.values() if one.group == letter.group and letter.topic in one.topics]
    own = own or [one for one in settings.consumers.values() if one.group == letter.group]
    own = own or [one for one in settings.consumers.values() if letter.topic in one.topics]
    if len(own) == 1:
        return own[0].name
    names = ", ".join(sorted(settings.consumers))
    which = "several consumers read" if own else "no consumer of this app reads"
    raise ConfigError(
        f"The letter is of the group {letter.group or '?'} and the topic {letter.topic or '?'}, which {which};"
        f" choose with --consumer: {names}."
    )


def report_of(result: TrialResult, letter: Letter, settings: Settings, *, reveal: bool) -> TrialReport:
    """The result as it is shown: masked unless `reveal`."""
    report: dict[str, Any] = {
        "consumer": result.consumer,
        "handler": result.handler,
        "outcome": result.outcome,
        "took_s": round(result.took_s, 6),
        "rolled_back": result.rolled_back,
        "sent": [CapturedSend.of(one) for one in result.sent],
    }
    failure = result.failure
    if failure is None:
        return TrialReport(**report)
    from keepfast.cli.explain import Explanation, next_step, view_of
    from keepfast.deadletters.fingerprint import user_place

    view = view_of(result.consumer, settings)
    explained = Explanation(failure.letter.error_type, failure.found, *view.policies.find(failure.error), ())
    stack: Sequence[str] = failure.letter.stack_trace.splitlines() if reveal else frames(failure.letter.stack_trace)
    message = failure.letter.error_message
    return TrialReport(
        **report,
        error_type=failure.letter.error_type,
        error_message=message if reveal else masked_text(message, failure.letter),
        error_code=failure.found.code,
        kind=failure.found.kind,
        rule=failure.found.rule,
        place=user_place(failure.error, package=result.handler.partition(":")[0].partition(".")[0]),
        stack=stack,
        same_cause=failure.letter.fingerprint == letter.fingerprint,
        next=next_step(explained, view),
    )
