"""Effects that happen once: where identities of processed records and outgoing events share a database transaction."""

from keepfast.inbox.postgres import PostgresInbox as PostgresInbox
from keepfast.inbox.sqlite import SqliteInbox as SqliteInbox
from keepfast.inbox.upsert import upsert as upsert
