"""`holdfast demo`: see it work, without anything to install."""

from __future__ import annotations

import time
from functools import partial

import click


@click.command()
@click.option("--orders", default=3000, show_default=True, help="How many orders the shop gets.")
@click.option("--kafka", is_flag=True, help="On a real Kafka (needs Java and Maven) instead of the embedded broker.")
def demo(orders: int, kafka: bool) -> None:  # noqa: FBT001 - click passes flags by name
    """A shop's orders through a real consumer, with failures and a kill -9 on the way.

    Ends by itself with the books: every order accounted for by identity, lost 0 (exit code 0) or not (1).
    """
    from holdfast.testing import EmbeddedBroker, KafkaBroker
    from holdfast.testing.demo.story import Stage, make_topics, play

    begun = time.monotonic()

    def say(text: str) -> None:
        click.echo(f"{time.monotonic() - begun:6.1f} s  {text}")

    if kafka:
        with KafkaBroker() as broker:
            stage = Stage(broker.bootstrap, orders, say)
            make_topics(partial(broker.create_topic, partitions=4), stage)
            books = play(stage)
    else:
        with EmbeddedBroker() as embedded:
            stage = Stage(embedded.bootstrap, orders, say)
            make_topics(embedded.create_topic, stage)
            books = play(stage)
    shown = ", ".join(f"{name.replace('_', ' ')} {count:,}" for name, count in books.items() if name != "lost")
    click.echo(f"\nThe books, read from the topics: {shown}")
    click.secho(f"lost {books['lost']:,}", fg="green" if books["lost"] == 0 else "red", bold=True)
    raise SystemExit(0 if books["lost"] == 0 else 1)
