"""The state of a user's own training loop: `ring.state(model, epoch=0)`."""

from __future__ import annotations

from typing import Any

from profiles.ground.errors import RingscopeError

from ..alike.begin import broadcast
from ..lost import launcher
from ..marks import mark_pause
from ..models import has_weights, kept
from . import commits
from .model_state import give_back, learning_rates, state_of
from .resume import commit_or_begin_again, say_resumed


class State:
    """A model and values (the object's attributes), which are restored from the last commit when the script restarts.

    Every rank creates it once, before its loop, and calls `commit` at the same steps. Without elastic Horovod it only
    holds the values, and `commit` does nothing.
    """

    def __init__(self, model: Any, **values: Any) -> None:
        self._names = tuple(values)
        vars(self).update(values)
        self._model = model
        if not launcher.is_elastic():
            return
        if kept(model).elastic is None or not has_weights(model):
            raise RingscopeError("ring.state(model) needs a built model; call ring.distribute(model) first")
        self._name: int = kept(model).elastic[0]
        self._rates = learning_rates(model)
        commit = commits.agreed()
        if self._name in commit.models:
            give_back(model, commit.models[self._name], self._rates)
            vars(self).update({name: commit.values.get(name, value) for name, value in values.items()})
            broadcast(model)  # the ranks' random generators get different seeds again
        mark_pause()
        say_resumed(", ".join(f"{name} {getattr(self, name)}" for name in self._names) or "the last commit")

    def __setattr__(self, name: str, value: Any) -> None:
        if not name.startswith("_") and name not in self._names:
            raise AttributeError(f"the state has no value {name!r}; create it: ring.state(model, {name}=...)")
        super().__setattr__(name, value)

    def commit(self) -> None:
        """Store the model and the values as they are now; restart the script with them if hosts were added or are to be
        removed."""
        if not launcher.is_elastic():
            return
        commit = commits.agreed()
        commit.values = {name: getattr(self, name) for name in self._names}
        commit.models[self._name] = state_of(self._model, self._rates)
        commit_or_begin_again()
