"""The surface that the HTTP routes and the direct transport call."""

from pai.engine.actions import respond
from pai.engine.admin_messages import append_message, get_messages, set_visibility
from pai.engine.commands import execute_command
from pai.engine.deletion import delete
from pai.engine.files import create_file_url, get_file, granted_file, open_pieces, read_file
from pai.engine.metadata import change_metadata, read_metadata
from pai.engine.queue import recall
from pai.engine.regenerate import regenerate
from pai.engine.runtime import Caller, Reply, Runtime
from pai.engine.send import send
from pai.engine.snapshot import get_state
from pai.engine.stop import stop_run, stop_thread
from pai.engine.threads import ThreadPosition, get_run, list_all_threads, list_threads, locate, rename, revisions
from pai.engine.tool_data import write_tool_data
from pai.engine.trigger_calls import fire_trigger
from pai.engine.uploads import upload_file

__all__ = [
    "Caller",
    "Reply",
    "Runtime",
    "ThreadPosition",
    "append_message",
    "change_metadata",
    "create_file_url",
    "delete",
    "execute_command",
    "fire_trigger",
    "get_file",
    "get_messages",
    "get_run",
    "get_state",
    "granted_file",
    "list_all_threads",
    "list_threads",
    "locate",
    "open_pieces",
    "read_file",
    "read_metadata",
    "recall",
    "regenerate",
    "rename",
    "respond",
    "revisions",
    "send",
    "set_visibility",
    "stop_run",
    "stop_thread",
    "upload_file",
    "write_tool_data",
]
