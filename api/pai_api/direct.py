"""Routes on the hot path: described like any other, called with the request alone.

FastAPI's dependency solver and its exit stacks cost a send several times what the rest of the tier costs. These
endpoints do the same by hand; what their `dependencies` declare is for the document only.
"""

from typing import Any

from fastapi.routing import APIRoute
from starlette.routing import request_response


class DirectRoute(APIRoute):
    """Must stand in the application's own list of routes: an included router would wrap it again."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.app = request_response(self.endpoint)
