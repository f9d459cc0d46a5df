"""What the two workers do: a cache of articles, and an index of the words in their titles."""

from __future__ import annotations

import json
from dataclasses import dataclass

from examples.database import Database

_CACHE = """
    INSERT INTO article_cache (id, title, version) VALUES (%s, %s, %s)
    ON CONFLICT (id) DO UPDATE SET title = EXCLUDED.title, version = EXCLUDED.version
    WHERE article_cache.version <= EXCLUDED.version
"""
_INDEX = "INSERT INTO article_words (word, id) VALUES (%s, %s) ON CONFLICT DO NOTHING"


@dataclass(frozen=True)
class Article:
    id: str
    title: str
    version: int


def decode(value: bytes) -> Article:
    """Raises ValueError."""
    try:
        fields = json.loads(value)
        return Article(id=str(fields["id"]), title=str(fields["title"]), version=int(fields["version"]))
    except (KeyError, TypeError) as error:
        raise ValueError("not an article") from error


@dataclass(frozen=True)
class Service:
    """Both may see an article twice: the second time changes nothing."""

    database: Database

    def cache(self, article: Article) -> None:
        with self.database.transaction() as connection:
            connection.execute(_CACHE, (article.id, article.title, article.version))

    def index(self, article: Article) -> None:
        with self.database.transaction() as connection:
            for word in sorted(set(article.title.lower().split())):
                connection.execute(_INDEX, (word, article.id))
