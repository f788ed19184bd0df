"""Fewer round trips on PostgreSQL: what needs no answer travels with the next statement that does.

BEGIN goes with the first statement, and the statements of `execute_all` go with COMMIT, in libpq's pipeline mode. So a
transaction costs one round trip for each of its queries and one for all of its writes, and holds its locks as briefly.
A failed statement makes the server skip the rest, COMMIT included.

psycopg's own pipeline mode sends each statement by itself and waits for the socket each time, which saves no work. The
classes here override methods that psycopg shares between its synchronous and its asyncio classes.
"""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from psycopg import AsyncConnection, AsyncCursor, abc, adapt, errors, generators
from psycopg._preparing import Prepare, PrepareManager
from psycopg._queries import PostgresQuery
from psycopg.abc import Params, PQGen, Query
from psycopg.pq import ExecStatus, TransactionStatus
from psycopg.pq.abc import PGresult


class PipelinedCursor(AsyncCursor[Any]):
    """Sends what its connection put off together with its own statement."""

    _conn: "PipelinedConnection"

    def _start_query(self, query: Query | None = None) -> PQGen[None]:
        self._conn.put_begin_off()
        yield from super()._start_query(query)

    def _maybe_prepare_gen(
        self, pgq: PostgresQuery, *, prepare: bool | None = None, binary: bool | None = None
    ) -> PQGen[None]:
        if not self._conn.is_waiting:
            yield from super()._maybe_prepare_gen(pgq, prepare=prepare, binary=binary)
            return
        self._conn.put_off(pgq)
        answers = yield from self._conn.exchange()
        self._query = pgq
        self._set_results(answers[-1])

    async def executemany(self, query: Query, params_seq: Iterable[Params], *, returning: bool = False) -> None:
        if returning:
            raise errors.NotSupportedError("executemany() returns no rows here")
        async with self._conn.lock:
            await self._conn.wait(self._executemany_gen(query, list(params_seq)))

    def _executemany_gen(self, query: Query, params_seq: Sequence[Params]) -> PQGen[None]:
        yield from self._start_query(query)
        for params in params_seq:
            self._conn.put_off(self._convert_query(query, params))
        if params_seq:
            answers = yield from self._conn.exchange()
            self._rowcount = sum(results[0].command_tuples or 0 for results in answers[-len(params_seq) :])


class PipelinedConnection(AsyncConnection[Any]):
    """`begin`: the statement that opens a transaction with the first one; None leaves each statement on its own."""

    begin: str | None = None

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.cursor_factory = PipelinedCursor
        self._waiting: list[PostgresQuery | bytes] = []
        self._own_transformer: abc.Transformer | None = None

    @property
    def is_waiting(self) -> bool:
        return bool(self._waiting)

    @property
    def is_idle(self) -> bool:
        """Nothing to roll back: no transaction is open and nothing waits to be sent."""
        return not self._waiting and self.pgconn.transaction_status == TransactionStatus.IDLE

    def put_begin_off(self) -> None:
        if self.begin and not self._waiting and self.pgconn.transaction_status == TransactionStatus.IDLE:
            self._waiting.append(self.begin.encode())

    def put_off(self, statement: PostgresQuery | bytes) -> None:
        self._waiting.append(statement)

    @property
    def _transformer(self) -> abc.Transformer:
        """Kept, because it remembers how types are converted; made late, when the connection knows its adapters."""
        if self._own_transformer is None:
            self._own_transformer = adapt.Transformer(self)
        return self._own_transformer

    def put_off_all(self, statements: Sequence[tuple[str, Any]]) -> None:
        """Statements in psycopg's own words, with their parameters: sent with the next exchange."""
        self.put_begin_off()
        for sql, parameters in statements:
            query = PostgresQuery(self._transformer)
            query.convert(sql.encode(), parameters)
            self._waiting.append(query)

    async def fetch_all(self, statements: Sequence[tuple[str, Any]]) -> list[list[tuple[Any, ...]]]:
        """Sends statements together; the rows of each. Without `begin` they are one transaction all the same."""
        async with self.lock:
            return await self.wait(self._fetch_all_gen(statements))

    def _fetch_all_gen(self, statements: Sequence[tuple[str, Any]]) -> PQGen[list[list[tuple[Any, ...]]]]:
        self.put_off_all(statements)
        answers = yield from self.exchange()
        return [self._rows(results[-1]) for results in answers[-len(statements) :]]

    def _rows(self, result: PGresult) -> list[tuple[Any, ...]]:
        self._transformer.set_pgresult(result)
        return self._transformer.load_rows(0, result.ntuples, tuple)

    def exchange(self) -> PQGen[list[list[PGresult]]]:
        """Sends everything that waits and returns the results of each statement. Raises the first error."""
        statements, self._waiting = self._waiting, []
        self._check_connection_ok()
        answers: list[list[PGresult]] = []
        try:
            self.pgconn.enter_pipeline_mode()
            sent = [self._send(statement) for statement in statements]
            self.pgconn.pipeline_sync()
            yield from generators.send(self.pgconn)
            while True:
                results = yield from generators.fetch_many(self.pgconn)
                if not results:
                    raise errors.OperationalError("the connection is lost")
                if results[0].status == ExecStatus.PIPELINE_SYNC:
                    break
                answers.append(results)
            self.pgconn.exit_pipeline_mode()
        except BaseException:
            # Where this connection is in the protocol is unknown.
            self.pgconn.finish()
            raise
        answers = self._prepares_noted(sent, answers)
        for results in answers:
            if results[0].status == ExecStatus.FATAL_ERROR:
                raise errors.error_from_result(results[0], encoding=self.pgconn._encoding)
        return answers

    def _send(self, statement: PostgresQuery | bytes) -> "_Sent | None":
        if isinstance(statement, bytes):
            self.pgconn.send_query_params(statement, None)
            return None
        prepare, name = self._prepared.get(statement)
        if prepare is Prepare.SHOULD:
            self.pgconn.send_prepare(name, statement.query, param_types=statement.types)
        if prepare is Prepare.NO:
            self.pgconn.send_query_params(
                statement.query, statement.params, param_types=statement.types, param_formats=statement.formats
            )
        else:
            self.pgconn.send_query_prepared(name, statement.params, param_formats=statement.formats)
        is_new = self._prepared.maybe_add_to_cache(statement, prepare, name) is not None
        return _Sent(PrepareManager.key(statement), prepare, name, is_new)

    def _prepares_noted(
        self, sent: Sequence["_Sent | None"], answers: Sequence[list[PGresult]]
    ) -> list[list[PGresult]]:
        """The answers without those to PREPARE, whose outcome is noted: after an error the server skips them too."""
        kept = []
        remaining = iter(answers)
        for statement in sent:
            results = next(remaining)
            if statement is not None and statement.prepare is Prepare.SHOULD:
                prepared, results = results, next(remaining)
                if prepared[0].status != ExecStatus.COMMAND_OK:
                    self._prepared._names.pop(statement.key, None)
                    results = prepared
            if statement is not None and statement.is_new:
                self._prepared.validate(statement.key, statement.prepare, statement.name, results)
            kept.append(results)
        return kept

    def _commit_gen(self) -> PQGen[None]:
        if self.pgconn.transaction_status == TransactionStatus.INERROR:
            # The server would answer COMMIT with a rollback, and call that a success.
            raise errors.InFailedSqlTransaction("a statement of this transaction failed: it cannot be committed")
        if self._waiting:
            self.put_off(b"COMMIT")
            yield from self.exchange()
        else:
            yield from super()._commit_gen()

    def _rollback_gen(self) -> PQGen[None]:
        # psycopg would also forget its prepared statements, for the sake of tables made and undone in the transaction.
        self._waiting.clear()
        if self.pgconn.transaction_status != TransactionStatus.IDLE:
            yield from self._exec_command(b"ROLLBACK")


class _Sent(NamedTuple):
    key: tuple[bytes, tuple[int, ...]]
    prepare: Prepare
    name: bytes
    is_new: bool
