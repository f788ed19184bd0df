"""The routes, one file for each thing they are about. A new file is added to `ROUTERS`, the hottest first."""

from fastapi import APIRouter

from pai_api.routes import (
    actions,
    agents,
    commands,
    files,
    heads,
    health,
    runs,
    send,
    stop,
    threads,
    trusted,
    turns,
    watch,
    watch_tokens,
)

ROUTERS: tuple[APIRouter, ...] = (
    send.router,
    watch.router,
    actions.router,
    stop.router,
    turns.router,
    commands.router,
    threads.router,
    runs.router,
    files.router,
    heads.router,
    watch_tokens.router,
    trusted.router,
    agents.router,
    health.router,
)
