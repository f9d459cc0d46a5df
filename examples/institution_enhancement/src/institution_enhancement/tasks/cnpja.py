"""The company registry: an external API that takes 5 requests a minute. The runner keeps that distance."""

from __future__ import annotations

from functools import cache
from typing import Any

import requests

from institution_enhancement.tasks.config import CnpjaConfig, Config


class UnreadableAnswer(ValueError):
    """The registry answered 200 with something that is no company. Asking again gives the same."""


@cache
def _config() -> CnpjaConfig:
    return Config.from_environment().cnpja


def parent_of(cnpj: str) -> str:
    """The name of the parent company. Raises requests.RequestException, whose kinds the classification knows, and
    UnreadableAnswer.
    """
    config = _config()
    answer = requests.get(f"{config.url}/companies/{cnpj}", timeout=config.timeout_seconds)
    answer.raise_for_status()
    try:
        company: Any = answer.json()
        return str(company["parent"]["name"])
    except (ValueError, KeyError, TypeError) as error:
        raise UnreadableAnswer("the registry's answer is no company") from error
