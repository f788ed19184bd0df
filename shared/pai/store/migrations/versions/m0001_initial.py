"""initial."""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

from pai.store.types import Json

revision: str = "0001"
down_revision: str | None = None
branch_labels: Sequence[str] | None = None
depends_on: Sequence[str] | None = None


def upgrade() -> None:
    op.create_table(
        "api_key",
        sa.Column("key_id", sa.Text(), nullable=False),
        sa.Column("secret_hash", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("tenant", sa.Text(), nullable=False),
        sa.Column("subject", sa.Text(), nullable=False),
        sa.Column("trusted", sa.Boolean(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("last_used_at", sa.BigInteger(), nullable=True),
        sa.Column("expires_at", sa.BigInteger(), nullable=True),
        sa.Column("revoked_at", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("key_id"),
    )
    op.create_table(
        "file",
        sa.Column("file_id", sa.Text(), nullable=False),
        sa.Column("owner", sa.Text(), nullable=False),
        sa.Column("agent", sa.Text(), nullable=False),
        sa.Column("version", sa.Text(), nullable=True),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("media_type", sa.Text(), nullable=False),
        sa.Column("filename", sa.Text(), nullable=True),
        sa.Column("byte_size", sa.BigInteger(), nullable=False),
        sa.Column("sha256", sa.Text(), nullable=True),
        sa.Column("meta", Json(), nullable=True),
        sa.Column("request_key", sa.Text(), nullable=True),
        sa.Column("request_hash", sa.Text(), nullable=True),
        sa.Column("due_at", sa.BigInteger(), nullable=True),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("file_id"),
        sa.UniqueConstraint("owner", "agent", "request_key", name="uq_file_owner_agent_request_key"),
    )
    with op.batch_alter_table("file", schema=None) as batch_op:
        batch_op.create_index(
            "ix_file_due",
            ["due_at"],
            unique=False,
            postgresql_where=sa.text("due_at IS NOT NULL"),
            sqlite_where=sa.text("due_at IS NOT NULL"),
        )
        batch_op.create_index(
            "ix_file_stored",
            ["owner", "byte_size"],
            unique=False,
            postgresql_where=sa.text("state <> 'deleting'"),
            sqlite_where=sa.text("state <> 'deleting'"),
        )
        batch_op.create_index(
            "ix_file_version",
            ["version"],
            unique=False,
            postgresql_where=sa.text("version IS NOT NULL"),
            sqlite_where=sa.text("version IS NOT NULL"),
        )

    op.create_table(
        "flag",
        sa.Column("flag_id", sa.Text(), nullable=False),
        sa.Column("version", sa.Text(), nullable=False),
        sa.Column("agent", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("child_version", sa.Text(), nullable=True),
        sa.Column("step_id", sa.Text(), nullable=True),
        sa.Column("value", Json(), nullable=True),
        sa.Column("tries", sa.Integer(), nullable=False),
        sa.Column("due_at", sa.BigInteger(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("flag_id"),
    )
    with op.batch_alter_table("flag", schema=None) as batch_op:
        batch_op.create_index("ix_flag_due", ["due_at"], unique=False)
        batch_op.create_index("ix_flag_version", ["version"], unique=False)

    op.create_table(
        "schedule",
        sa.Column("agent", sa.Text(), nullable=False),
        sa.Column("trigger", sa.Text(), nullable=False),
        sa.Column("next_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("agent", "trigger"),
    )
    with op.batch_alter_table("schedule", schema=None) as batch_op:
        batch_op.create_index("ix_schedule_next_at", ["next_at"], unique=False)

    op.create_table(
        "signing_key",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("value", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("name"),
    )
    op.create_table(
        "thread",
        sa.Column("version", sa.Text(), nullable=False),
        sa.Column("owner", sa.Text(), nullable=False),
        sa.Column("agent", sa.Text(), nullable=False),
        sa.Column("thread_id", sa.Text(), nullable=False),
        sa.Column("parent_version", sa.Text(), nullable=True),
        sa.Column("parent_thread_id", sa.Text(), nullable=True),
        sa.Column("parent_agent", sa.Text(), nullable=True),
        sa.Column("parent_run_id", sa.Text(), nullable=True),
        sa.Column("parent_step_id", sa.Text(), nullable=True),
        sa.Column("depth", sa.Integer(), nullable=False),
        sa.Column("category", sa.Text(), nullable=True),
        sa.Column("hidden", sa.Boolean(), nullable=False),
        sa.Column("title", Json(), nullable=True),
        sa.Column("meta", Json(), nullable=False),
        sa.Column("private_meta", Json(), nullable=False),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("current_run_id", sa.Text(), nullable=True),
        sa.Column("queued", sa.Integer(), nullable=False),
        sa.Column("actions", Json(), nullable=False),
        sa.Column("revision", sa.BigInteger(), nullable=False),
        sa.Column("log_epoch", sa.BigInteger(), nullable=False),
        sa.Column("next_position", sa.BigInteger(), nullable=False),
        sa.Column("next_step", sa.BigInteger(), nullable=False),
        sa.Column("usage", Json(), nullable=False),
        sa.Column("error", Json(), nullable=True),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("updated_at", sa.BigInteger(), nullable=False),
        sa.Column("listed_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("version"),
        sa.UniqueConstraint("owner", "agent", "thread_id", name="uq_thread_owner_agent_thread_id"),
    )
    with op.batch_alter_table("thread", schema=None) as batch_op:
        batch_op.create_index(
            "ix_thread_busy",
            ["owner"],
            unique=False,
            postgresql_where=sa.text("status <> 'idle'"),
            sqlite_where=sa.text("status <> 'idle'"),
        )
        batch_op.create_index("ix_thread_list", ["owner", "agent", "hidden", "listed_at", "version"], unique=False)
        batch_op.create_index(
            "ix_thread_list_category",
            ["owner", "agent", "category", "listed_at", "version"],
            unique=False,
            postgresql_where=sa.text("category IS NOT NULL"),
            sqlite_where=sa.text("category IS NOT NULL"),
        )
        batch_op.create_index(
            "ix_thread_list_parent",
            ["owner", "agent", "parent_thread_id", "listed_at", "version"],
            unique=False,
            postgresql_where=sa.text("parent_thread_id IS NOT NULL"),
            sqlite_where=sa.text("parent_thread_id IS NOT NULL"),
        )
        batch_op.create_index("ix_thread_listed", ["listed_at", "version"], unique=False)
        batch_op.create_index("ix_thread_parent", ["parent_version"], unique=False)

    op.create_table(
        "trigger_fire",
        sa.Column("fire_id", sa.Text(), nullable=False),
        sa.Column("agent", sa.Text(), nullable=False),
        sa.Column("trigger", sa.Text(), nullable=False),
        sa.Column("slot", sa.BigInteger(), nullable=True),
        sa.Column("owner", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("due_at", sa.BigInteger(), nullable=True),
        sa.Column("thread_id", sa.Text(), nullable=True),
        sa.Column("run_id", sa.Text(), nullable=True),
        sa.Column("error", sa.Text(), nullable=True),
        sa.Column("request_key", sa.Text(), nullable=True),
        sa.Column("request_hash", sa.Text(), nullable=True),
        sa.Column("result", Json(), nullable=True),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("fire_id"),
        sa.UniqueConstraint("agent", "trigger", "slot", name="uq_trigger_fire_agent_trigger_slot"),
        sa.UniqueConstraint("owner", "agent", "trigger", "request_key", name="uq_trigger_fire_request_key"),
    )
    with op.batch_alter_table("trigger_fire", schema=None) as batch_op:
        batch_op.create_index(
            "ix_trigger_fire_closed",
            ["created_at"],
            unique=False,
            postgresql_where=sa.text("due_at IS NULL"),
            sqlite_where=sa.text("due_at IS NULL"),
        )
        batch_op.create_index(
            "ix_trigger_fire_due",
            ["due_at"],
            unique=False,
            postgresql_where=sa.text("due_at IS NOT NULL"),
            sqlite_where=sa.text("due_at IS NOT NULL"),
        )

    op.create_table(
        "file_use",
        sa.Column("version", sa.Text(), nullable=False),
        sa.Column("message_id", sa.Text(), nullable=False),
        sa.Column("file_id", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["file_id"], ["file.file_id"], ondelete="CASCADE"),
        sa.ForeignKeyConstraint(["version"], ["thread.version"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("version", "message_id", "file_id"),
    )
    with op.batch_alter_table("file_use", schema=None) as batch_op:
        batch_op.create_index("ix_file_use_file", ["file_id"], unique=False)

    op.create_table(
        "message",
        sa.Column("version", sa.Text(), nullable=False),
        sa.Column("message_id", sa.Text(), nullable=False),
        sa.Column("position", sa.BigInteger(), nullable=False),
        sa.Column("run_id", sa.Text(), nullable=True),
        sa.Column("role", sa.Text(), nullable=False),
        sa.Column("meta", Json(), nullable=False),
        sa.Column("parts", Json(), nullable=False),
        sa.Column("private_meta", Json(), nullable=False),
        sa.Column("visibility", sa.Text(), nullable=False),
        sa.Column("open", sa.Boolean(), nullable=False),
        sa.Column("folding", Json(), nullable=True),
        sa.Column("stored_sequence", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["version"], ["thread.version"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("version", "message_id"),
        sa.UniqueConstraint("version", "position", name="uq_message_version_position"),
    )
    with op.batch_alter_table("message", schema=None) as batch_op:
        batch_op.create_index("ix_message_run", ["version", "run_id"], unique=False)

    op.create_table(
        "queue_item",
        sa.Column("queue_item_id", sa.Text(), nullable=False),
        sa.Column("version", sa.Text(), nullable=False),
        sa.Column("run_id", sa.Text(), nullable=False),
        sa.Column("position", sa.BigInteger(), nullable=False),
        sa.Column("mode", sa.Text(), nullable=False),
        sa.Column("messages", Json(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["version"], ["thread.version"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("queue_item_id"),
    )
    with op.batch_alter_table("queue_item", schema=None) as batch_op:
        batch_op.create_index("ix_queue_item_version", ["version", "position"], unique=False)

    op.create_table(
        "receipt",
        sa.Column("version", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("request_id", sa.Text(), nullable=False),
        sa.Column("request_hash", sa.Text(), nullable=False),
        sa.Column("result", Json(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["version"], ["thread.version"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("version", "kind", "request_id"),
    )
    op.create_table(
        "run",
        sa.Column("run_id", sa.Text(), nullable=False),
        sa.Column("version", sa.Text(), nullable=False),
        sa.Column("position", sa.BigInteger(), nullable=False),
        sa.Column("initiator", sa.Text(), nullable=False),
        sa.Column("mode", sa.Text(), nullable=False),
        sa.Column("queue_item_id", sa.Text(), nullable=True),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("input_message_ids", Json(), nullable=True),
        sa.Column("usage", Json(), nullable=False),
        sa.Column("meta", Json(), nullable=False),
        sa.Column("private_meta", Json(), nullable=False),
        sa.Column("client_data", Json(), nullable=True),
        sa.Column("client_tools", Json(), nullable=True),
        sa.Column("seen_tools", Json(), nullable=False),
        sa.Column("phase", sa.Text(), nullable=False),
        sa.Column("model_steps", sa.Integer(), nullable=False),
        sa.Column("message_id", sa.Text(), nullable=True),
        sa.Column("turn_reason", sa.Text(), nullable=True),
        sa.Column("finish_reason", sa.Text(), nullable=True),
        sa.Column("error", Json(), nullable=True),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("started_at", sa.BigInteger(), nullable=True),
        sa.Column("completed_at", sa.BigInteger(), nullable=True),
        sa.ForeignKeyConstraint(["version"], ["thread.version"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("run_id"),
    )
    with op.batch_alter_table("run", schema=None) as batch_op:
        batch_op.create_index("ix_run_version", ["version", "position"], unique=False)

    op.create_table(
        "step",
        sa.Column("step_id", sa.Text(), nullable=False),
        sa.Column("version", sa.Text(), nullable=False),
        sa.Column("number", sa.BigInteger(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("agent", sa.Text(), nullable=False),
        sa.Column("run_id", sa.Text(), nullable=False),
        sa.Column("message_id", sa.Text(), nullable=True),
        sa.Column("tool_call_id", sa.Text(), nullable=True),
        sa.Column("name", sa.Text(), nullable=True),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("queue", sa.Text(), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("tries", sa.Integer(), nullable=False),
        sa.Column("max_attempts", sa.Integer(), nullable=False),
        sa.Column("available_at", sa.BigInteger(), nullable=False),
        sa.Column("timeout_ms", sa.BigInteger(), nullable=True),
        sa.Column("deadline_at", sa.BigInteger(), nullable=True),
        sa.Column("lease_owner", sa.Text(), nullable=True),
        sa.Column("lease_expires_at", sa.BigInteger(), nullable=True),
        sa.Column("dispatches", sa.Integer(), nullable=False),
        sa.Column("dispatch_at", sa.BigInteger(), nullable=True),
        sa.Column("first_started_at", sa.BigInteger(), nullable=True),
        sa.Column("finish_reason", sa.Text(), nullable=True),
        sa.Column("error", Json(), nullable=True),
        sa.ForeignKeyConstraint(["version"], ["thread.version"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("step_id"),
    )
    with op.batch_alter_table("step", schema=None) as batch_op:
        batch_op.create_index(
            "ix_step_due",
            ["dispatch_at"],
            unique=False,
            postgresql_where=sa.text("dispatch_at IS NOT NULL"),
            sqlite_where=sa.text("dispatch_at IS NOT NULL"),
        )
        batch_op.create_index(
            "ix_step_leases",
            ["lease_expires_at"],
            unique=False,
            postgresql_where=sa.text("lease_expires_at IS NOT NULL"),
            sqlite_where=sa.text("lease_expires_at IS NOT NULL"),
        )
        batch_op.create_index("ix_step_version", ["version", "run_id"], unique=False)

    op.create_table(
        "journal",
        sa.Column("step_id", sa.Text(), nullable=False),
        sa.Column("ordinal", sa.Integer(), nullable=False),
        sa.Column("version", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("value", Json(), nullable=True),
        sa.ForeignKeyConstraint(["step_id"], ["step.step_id"], ondelete="CASCADE"),
        sa.ForeignKeyConstraint(["version"], ["thread.version"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("step_id", "ordinal"),
    )
    with op.batch_alter_table("journal", schema=None) as batch_op:
        batch_op.create_index("ix_journal_version", ["version"], unique=False)


def downgrade() -> None:
    with op.batch_alter_table("journal", schema=None) as batch_op:
        batch_op.drop_index("ix_journal_version")

    op.drop_table("journal")
    with op.batch_alter_table("step", schema=None) as batch_op:
        batch_op.drop_index("ix_step_version")
        batch_op.drop_index(
            "ix_step_leases",
            postgresql_where=sa.text("lease_expires_at IS NOT NULL"),
            sqlite_where=sa.text("lease_expires_at IS NOT NULL"),
        )
        batch_op.drop_index(
            "ix_step_due",
            postgresql_where=sa.text("dispatch_at IS NOT NULL"),
            sqlite_where=sa.text("dispatch_at IS NOT NULL"),
        )

    op.drop_table("step")
    with op.batch_alter_table("run", schema=None) as batch_op:
        batch_op.drop_index("ix_run_version")

    op.drop_table("run")
    op.drop_table("receipt")
    with op.batch_alter_table("queue_item", schema=None) as batch_op:
        batch_op.drop_index("ix_queue_item_version")

    op.drop_table("queue_item")
    with op.batch_alter_table("message", schema=None) as batch_op:
        batch_op.drop_index("ix_message_run")

    op.drop_table("message")
    with op.batch_alter_table("file_use", schema=None) as batch_op:
        batch_op.drop_index("ix_file_use_file")

    op.drop_table("file_use")
    with op.batch_alter_table("trigger_fire", schema=None) as batch_op:
        batch_op.drop_index(
            "ix_trigger_fire_due",
            postgresql_where=sa.text("due_at IS NOT NULL"),
            sqlite_where=sa.text("due_at IS NOT NULL"),
        )
        batch_op.drop_index(
            "ix_trigger_fire_closed", postgresql_where=sa.text("due_at IS NULL"), sqlite_where=sa.text("due_at IS NULL")
        )

    op.drop_table("trigger_fire")
    with op.batch_alter_table("thread", schema=None) as batch_op:
        batch_op.drop_index("ix_thread_parent")
        batch_op.drop_index("ix_thread_listed")
        batch_op.drop_index(
            "ix_thread_list_parent",
            postgresql_where=sa.text("parent_thread_id IS NOT NULL"),
            sqlite_where=sa.text("parent_thread_id IS NOT NULL"),
        )
        batch_op.drop_index(
            "ix_thread_list_category",
            postgresql_where=sa.text("category IS NOT NULL"),
            sqlite_where=sa.text("category IS NOT NULL"),
        )
        batch_op.drop_index("ix_thread_list")
        batch_op.drop_index(
            "ix_thread_busy", postgresql_where=sa.text("status <> 'idle'"), sqlite_where=sa.text("status <> 'idle'")
        )

    op.drop_table("thread")
    op.drop_table("signing_key")
    with op.batch_alter_table("schedule", schema=None) as batch_op:
        batch_op.drop_index("ix_schedule_next_at")

    op.drop_table("schedule")
    with op.batch_alter_table("flag", schema=None) as batch_op:
        batch_op.drop_index("ix_flag_version")
        batch_op.drop_index("ix_flag_due")

    op.drop_table("flag")
    with op.batch_alter_table("file", schema=None) as batch_op:
        batch_op.drop_index(
            "ix_file_version",
            postgresql_where=sa.text("version IS NOT NULL"),
            sqlite_where=sa.text("version IS NOT NULL"),
        )
        batch_op.drop_index(
            "ix_file_stored",
            postgresql_where=sa.text("state <> 'deleting'"),
            sqlite_where=sa.text("state <> 'deleting'"),
        )
        batch_op.drop_index(
            "ix_file_due", postgresql_where=sa.text("due_at IS NOT NULL"), sqlite_where=sa.text("due_at IS NOT NULL")
        )

    op.drop_table("file")
    op.drop_table("api_key")
