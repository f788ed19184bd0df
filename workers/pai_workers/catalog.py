"""The models of a worker process, each built when an agent first needs it and kept for the process's event loop."""

import asyncio
import logging
from typing import Any

from pai.contract import Registry
from pai.models import Model, ModelError, ModelOptions, resolve_model
from pai.settings import Settings

logger = logging.getLogger(__name__)


class Models:
    """`get` takes what an agent declares as its model. Raises ModelError when it cannot be built."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._built: dict[Any, Model] = {}

    def get(self, declared: Any) -> Model:
        key = declared if isinstance(declared, str) else id(declared)
        model = self._built.get(key)
        if model is None:
            model = self._built[key] = resolve_model(declared, options=self._options(declared))
        return model

    async def prepare(self, registry: Registry) -> None:
        """Builds the models that agents declare by name, before any step runs.

        Importing a provider's library takes seconds, in which the event loop would renew nothing and stream nothing.
        """
        for declared in {agent.model for agent in registry if isinstance(agent.model, str)}:
            try:
                await asyncio.to_thread(resolve_model, declared, options=self._options(declared))
            except ModelError as error:
                logger.warning("The model %s cannot be used: %s", declared, error.message)

    def _options(self, declared: Any) -> ModelOptions | None:
        if not isinstance(declared, str):
            return None
        provider = declared.partition(":")[0].partition("-")[0]
        key = getattr(self._settings, f"{provider}_api_key", None)
        base_url = getattr(self._settings, f"{provider}_base_url", None)
        return ModelOptions(base_url=base_url, api_key=None if key is None else key.get_secret_value())

    async def close(self) -> None:
        for model in self._built.values():
            closing = getattr(model, "aclose", None)
            if closing is not None:
                await closing()
