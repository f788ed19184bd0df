"""The agents that a process serves: what `PAI_AGENTS` names."""

import importlib
import os
import sys
from collections.abc import Iterator

from pai.contract.agent import Agent
from pai.protocol.errors import DeclarationError, NotFound

RESERVED = frozenset({"threads"})
"""What `/api/pai/{agent}` cannot be."""


class Registry:
    """Agents by name, in the order given. Raises DeclarationError for two of one name, or what is no agent."""

    def __init__(self, *agents: Agent) -> None:
        self._agents: dict[str, Agent] = {}
        for agent in agents:
            if not isinstance(agent, Agent):
                raise DeclarationError(f"Registry: {agent!r} is no Agent; pass them one by one: Registry(one, two).")
            if agent.name in RESERVED:
                raise DeclarationError(f"Registry: {agent.name!r} is a route below /api/pai; rename the agent.")
            if agent.name in self._agents:
                raise DeclarationError(f"Registry: two agents are named {agent.name!r}; rename one.")
            self._agents[agent.name] = agent

    def get(self, name: str) -> Agent:
        """Raises NotFound."""
        try:
            return self._agents[name]
        except KeyError:
            raise NotFound("agent") from None

    @property
    def queues(self) -> frozenset[str]:
        """The Celery queues that agents and their tools name."""
        named = {agent.queue for agent in self} | {tool.queue for agent in self for tool in agent.tools.values()}
        return frozenset(name for name in named if name is not None)

    def __iter__(self) -> Iterator[Agent]:
        return iter(self._agents.values())

    def __len__(self) -> int:
        return len(self._agents)

    def __contains__(self, name: object) -> bool:
        return name in self._agents

    def __repr__(self) -> str:
        return f"Registry({', '.join(self._agents)})"

    @classmethod
    def load(cls, path: str) -> "Registry":
        """Import `module:attribute`, with the working directory on the path. The attribute is a Registry or an Agent.

        Raises DeclarationError that says what is missing; an error inside the module is its `__cause__`.
        """
        module_name, separator, attribute = path.partition(":")
        if not (module_name and separator and attribute):
            raise DeclarationError(f"PAI_AGENTS {path!r}: write `module:attribute`, such as `my_app.agents:registry`.")
        if (directory := os.getcwd()) not in sys.path:
            sys.path.insert(0, directory)
        try:
            found: object = importlib.import_module(module_name)
        except DeclarationError:
            raise
        except ModuleNotFoundError as error:
            missing = error.name or module_name
            if module_name == missing or module_name.startswith(f"{missing}."):
                reason = f"there is no module {missing!r} in {directory} or on the Python path"
            else:
                reason = f"{module_name!r} imports {missing!r}, which is not installed"
            raise DeclarationError(f"PAI_AGENTS {path!r}: {reason}.") from error
        except Exception as error:
            raise DeclarationError(
                f"PAI_AGENTS {path!r}: importing {module_name!r} failed with {type(error).__name__}: {error}"
            ) from error
        for name in attribute.split("."):
            if not hasattr(found, name):
                raise DeclarationError(f"PAI_AGENTS {path!r}: {module_name!r} has no attribute {attribute!r}.")
            found = getattr(found, name)
        if isinstance(found, Agent):
            return cls(found)
        if not isinstance(found, Registry):
            raise DeclarationError(
                f"PAI_AGENTS {path!r} is a {type(found).__name__}; it must be a Registry or an Agent."
            )
        return found
