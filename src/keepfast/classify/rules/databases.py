"""Rules for databases: SQLSTATE, result codes of SQLite, the classes of the drivers, SQLAlchemy, Redis."""

from __future__ import annotations

from typing import Final

from keepfast.classify.rules.rule import Rule

_TRANSIENT = "§1.1.1 Database Transient Errors"
_BUSINESS = "§1.1.2 Business Logic Errors"
_AUTH = "§1.1.2 Authentication/Authorization"
_DRIVERS = ("psycopg", "psycopg2", "sqlalchemy.exc")
_REDIS = "redis.exceptions"


def _states(*states: str) -> tuple[str, ...]:
    return tuple(f"sqlstate:{state}" for state in states)


def _each(name: str) -> tuple[str, ...]:
    """The class of that name in every driver that implements Python's database API."""
    return tuple(f"{driver}.{name}" for driver in _DRIVERS)


def _redis(*names: str) -> tuple[str, ...]:
    return tuple(f"{_REDIS}.{name}" for name in names)


def _is_of_statement(error: BaseException) -> bool:
    return any(text in str(error) for text in ("no such", "has no column", "syntax error"))


DATABASE_RULES: Final = (
    Rule(
        _states("08", "53", "57P01", "57P02", "57P03", "57P04", "58", "25006"),
        "retryable",
        name="sqlstate-down",
        code="DB_TRANSIENT_ERROR",
        outage=True,
        standard=_TRANSIENT,
        why="Connection lost, resources exhausted, server stopping or starting, or a primary that became a standby.",
    ),
    Rule(
        _states("40", "55P03", "55006", "25P02", "25P03", "57P05"),
        "retryable",
        name="sqlstate-conflict",
        code="DB_TRANSIENT_ERROR",
        standard=_TRANSIENT,
        why="Deadlock, serialization failure, lock not available, transaction failed: a new transaction may succeed.",
    ),
    Rule(
        _states("57014", "25P04"),
        "retryable",
        name="sqlstate-timeout",
        code="DB_TIMEOUT",
        outage=True,
        standard=_TRANSIENT,
        why="Cancelled by a statement or transaction time limit. With a breaker a hanging database costs no letters.",
    ),
    Rule(
        _states("54", "55", "57", "72"),
        "retryable",
        name="sqlstate-operational",
        code="DB_TRANSIENT_ERROR",
        standard=_TRANSIENT,
        why="Other errors that drivers call operational: limits, objects in the wrong state, administrator actions.",
    ),
    Rule(
        _states("23", "40002", "44", "P0001"),
        "non-retryable",
        name="sqlstate-constraint",
        code="DB_CONSTRAINT_VIOLATION",
        standard=_BUSINESS,
        why="Unique, foreign key, not null, check, or raised by a trigger: the same row violates it again.",
    ),
    Rule(
        _states("22"),
        "non-retryable",
        name="sqlstate-data",
        code="DB_DATA_INVALID",
        standard="§1.1.2 Validation Errors",
        why="A value does not match its column.",
    ),
    Rule(
        _states("42", "21", "3D", "3F"),
        "non-retryable",
        name="sqlstate-statement",
        code="DB_STATEMENT_INVALID",
        standard="§1.1.2 Configuration Errors",
        why="Syntax, or a table, column, schema or database that does not exist.",
    ),
    Rule(
        _states("28", "42501"),
        "non-retryable",
        name="sqlstate-auth",
        code="AUTH_REFUSED",
        standard=_AUTH,
        why="The role may not log in, or lacks the permission.",
    ),
    Rule(
        _states("28P01"),
        "retryable",
        name="sqlstate-password",
        code="AUTH_REFUSED",
        outage=True,
        standard=_TRANSIENT,
        why="A rotated password affects every record, and dead-lettering them does not renew it.",
    ),
    Rule(
        tuple(f"sqlite:{code}" for code in ("FULL", "IOERR", "READONLY", "CANTOPEN", "CORRUPT", "NOTADB", "NOLFS")),
        "retryable",
        name="sqlite-down",
        code="DB_TRANSIENT_ERROR",
        outage=True,
        standard=_TRANSIENT,
        why="The disk is full, read-only or broken, or the file cannot be used: this affects every record.",
    ),
    Rule(
        "sqlite:ERROR",
        "non-retryable",
        when=_is_of_statement,
        name="sqlite-statement",
        code="DB_STATEMENT_INVALID",
        standard="§1.1.2 Configuration Errors",
        why="Syntax, or a table or column that does not exist. SQLite has this code for other errors, too: they are"
        " retried.",
    ),
    # Drivers, where there is no SQLSTATE
    Rule(
        (*_each("OperationalError"), *_each("InterfaceError"), "sqlalchemy.exc.DisconnectionError"),
        "retryable",
        name="db-down",
        code="DB_TRANSIENT_ERROR",
        outage=True,
        standard=_TRANSIENT,
        why="Without a SQLSTATE the server did not respond: it is unreachable, or the connection broke.",
    ),
    Rule(
        "sqlite3.OperationalError",
        "retryable",
        name="db-sqlite",
        code="DB_TRANSIENT_ERROR",
        standard=_TRANSIENT,
        why="Mostly `database is locked`: another connection writes.",
    ),
    Rule(
        ("sqlalchemy.exc.TimeoutError", "psycopg2.pool.PoolError"),
        "retryable",
        name="db-pool",
        code="DB_TRANSIENT_ERROR",
        outage=True,
        standard=_TRANSIENT,
        why="Connection pool exhausted: its connections are in use or hang.",
    ),
    Rule(
        ("asyncpg.exceptions._base.InterfaceError", "sqlalchemy.exc.PendingRollbackError"),
        "retryable",
        name="db-connection-state",
        code="DB_TRANSIENT_ERROR",
        standard=_TRANSIENT,
        why="A connection in a state that a new one does not have.",
    ),
    Rule(
        (*_each("IntegrityError"), "sqlite3.IntegrityError"),
        "non-retryable",
        name="db-constraint",
        code="DB_CONSTRAINT_VIOLATION",
        standard=_BUSINESS,
        why="The same row violates the constraint again.",
    ),
    Rule(
        (*_each("DataError"), "sqlite3.DataError", "asyncpg.exceptions._base.DataError"),
        "non-retryable",
        name="db-data",
        code="DB_DATA_INVALID",
        standard="§1.1.2 Validation Errors",
        why="A value does not match its column.",
    ),
    Rule(
        (
            *_each("ProgrammingError"),
            "sqlite3.ProgrammingError",
            *(f"sqlalchemy.exc.{name}" for name in ("ArgumentError", "CompileError")),
        ),
        "non-retryable",
        name="db-statement",
        code="DB_STATEMENT_INVALID",
        standard="§1.1.2",
        why="The statement is invalid.",
    ),
    Rule(
        "sqlalchemy.exc.NoResultFound",
        "not-found",
        name="db-not-found",
        code="NOT_FOUND",
        standard="§1.1.2 Not Found",
        why="The row may be inserted later, or never: the setting decides.",
    ),
    Rule(
        "asyncpg.exceptions._base.ClientConfigurationError",
        "non-retryable",
        name="db-configuration",
        code="CONFIGURATION",
        standard="§1.1.2 Configuration Errors",
        why="The address or an option of the connection is wrong.",
    ),
    # Redis
    Rule(
        _redis("ConnectionError", "ClusterDownError", "ReadOnlyError", "OutOfMemoryError", "RedisClusterException")
        + _redis("MaxConnectionsError"),
        "retryable",
        name="redis-down",
        code="DB_TRANSIENT_ERROR",
        outage=True,
        standard=_TRANSIENT,
        why="Unreachable, loading, failing over, full, or the pool is exhausted.",
    ),
    Rule(
        _redis("TimeoutError"),
        "retryable",
        name="redis-timeout",
        code="DB_TIMEOUT",
        outage=True,
        standard="§1.1.1 Timeout Errors",
        why="A healthy Redis responds in milliseconds.",
    ),
    Rule(
        _redis("WatchError", "LockError", "TryAgainError", "AskError", "ExecAbortError"),
        "retryable",
        name="redis-conflict",
        code="DB_TRANSIENT_ERROR",
        standard=_TRANSIENT,
        why="A lock or a watched key is in use, or a slot is moving.",
    ),
    Rule(
        _redis(
            "AuthenticationError", "AuthorizationError", "NoPermissionError", "AuthenticationWrongNumberOfArgsError"
        ),
        "non-retryable",
        name="redis-auth",
        code="AUTH_REFUSED",
        standard=_AUTH,
        why="The login or the permission is refused.",
    ),
    Rule(
        _redis("DataError"),
        "non-retryable",
        name="redis-data",
        code="DB_DATA_INVALID",
        standard="§1.1.2 Validation Errors",
        why="A value that Redis rejects.",
    ),
)
