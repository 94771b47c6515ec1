"""`model.fit` with commits: after a restart it continues at the last one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any

import keras

from .. import say
from ..alike.begin import broadcast
from ..exchange import from_rank, reduced_on_host
from ..internals.frameworks import hvd
from ..lost import launcher, restart
from ..models import kept
from . import callback_state, commits
from .model_state import add_counts, counts_of, give_back, learning_rates, state_of
from .rest import Data

Run = Callable[[dict[str, Any], "FitPart"], Any]
"""(options of Keras's fit, the part that this call runs) -> its history."""
Build = Callable[[Any, dict[str, Any]], bool]
"""(model, options of Keras's fit) -> True if weights were missing."""

_fits = 0  # number of calls of `fit` since the script began
_said = False


@dataclass(frozen=True)
class Place:
    """A place within a `fit`. batches: number of batches of the whole data done in this epoch. order: number of times
    that the data set had begun before this epoch, which decides the order of a shuffle."""

    epoch: int
    batches: int = 0
    order: int = 0


def fit(model: Any, run: Run, build: Build, options: dict[str, Any], *, shard: bool) -> Any:
    """Keras's `fit`, in as many parts as needed: none if it had ended when it was committed; two if it was committed
    within an epoch, because the rest of that epoch is another data set than later epochs use.

    build: creates the weights that a model does not have yet.
    """
    global _fits
    commit, number = commits.agreed(), _fits
    _fits += 1
    name, every = kept(model).elastic
    rates = learning_rates(model)
    if number < len(commit.fits):
        if name in commit.models:
            build(model, options)
            give_back(model, commit.models[name], rates)
            broadcast(model)
        return _history(model, commit.fits[number])
    known = commit.fit
    data = Data(options, every, shard=shard)
    if every:
        data.check()
    if known:
        at = Place(**known["place"])
        at = replace(at, batches=data.start(at.epoch, at.batches, hvd.size()))
    else:
        at = Place(int(options.get("initial_epoch") or 0), order=data.order())
        say_resumed("the beginning" if not number else f"the beginning of fit {number + 1}")
    history = known.get("history", {"epoch": [], "history": {}, "pauses": []})
    epochs = int(options.get("epochs", 1))
    before = getattr(model, "_initial_epoch", None)
    given = options.get("callbacks") or []
    callbacks = list(given) if isinstance(given, (list, tuple)) else [given]
    ends = [at.epoch + 1, epochs] if at.batches and at.epoch + 1 < epochs else [epochs]
    for end in ends:
        first, last = end == ends[0], end == ends[-1]
        part = FitPart(model, name, every, rates, at, history, data, callbacks, first, last)
        taken = run(data.options_from(at.epoch, at.batches) | {"epochs": end}, part)
        history, at = _added(history, taken), part.at
        data.was_begun(at.order)
        if model.stop_training:
            break
    model._initial_epoch = before
    commit.fits.append(history)
    commit.fit = {}
    commit.models[name] = state_of(model, rates)
    commits.keep()
    return _history(model, history)


def _added(history: dict[str, Any], taken: Any) -> dict[str, Any]:
    names = [*history["history"], *(name for name in taken.history if name not in history["history"])]
    return {
        "epoch": [*history["epoch"], *taken.epoch],
        "history": {name: [*history["history"].get(name, []), *taken.history.get(name, [])] for name in names},
        "pauses": history["pauses"],
    }


def _history(model: Any, known: dict[str, Any]) -> Any:
    history = keras.callbacks.History()
    history.set_model(model)
    history.epoch, history.history = list(known["epoch"]), dict(known["history"])
    history.pauses = list(known["pauses"])
    model.history = history
    return history


@dataclass
class FitPart:
    """One call of Keras's `fit`, as its callbacks see it.

    name: number of the call of `ring.distribute`. every: steps between commits within an epoch; 0: none. rates:
    learning rates, as in `state_of`. history: Keras's history of the earlier parts. first, last: True for the first or
    the last part.
    """

    model: Any
    name: int
    every: int
    rates: list[float | None]
    at: Place
    history: dict[str, Any]
    data: Data
    callbacks: list[Any]
    first: bool
    last: bool

    def __post_init__(self) -> None:
        known = commits.agreed().fit
        self._steps, self._resumed = 0, self.first and bool(known)
        self._counts = known["counts"] if self._resumed and self.at.batches else []
        self._so_far = self.history
        if self._resumed:
            callback_state.append_to_files(self.callbacks)

    def data_is(self, own: Any, looked_at: bool) -> None:
        """Bring this rank's share of the data, `own`, into the order of the committed place."""
        self.data.bring_into_order(own, self.at.order, looked_at)

    def train_begins(self) -> None:
        """Restore the commit, after the callbacks' own `on_train_begin`, which would reset their state."""
        if self._resumed or not self.first:
            self.model._initial_epoch = self.at.epoch  # Keras prefers this attribute to the argument initial_epoch
        if not self._resumed:
            return
        commit = commits.agreed()
        give_back(self.model, commit.models[self.name], self.rates)
        broadcast(self.model)  # the ranks' random generators get different seeds again
        callback_state.give_back(self.callbacks, commit.fit["callbacks"])
        say_resumed(f"epoch {self.at.epoch + 1}" + (f" after batch {self.at.batches}" if self.at.batches else ""))
        # A rank that has just joined does not know how long training paused, so rank 0 tells it.
        place = {"epoch": self.at.epoch, "batch": self.at.batches, "ranks": hvd.size()}
        pause = place | {"seconds": restart.paused_ns() / 1e9, "why": restart.before().why}
        self.history["pauses"].append(from_rank(0, pause))
        commits.keep()

    def epoch_begins(self) -> None:
        self._steps = 0

    def batch_ended(self, steps: int) -> None:
        """Commit if the steps between commits are over. steps: number of steps taken in this part of the epoch."""
        self._steps = steps
        if self._counts:
            add_counts(self.model, self._counts)
            self._counts = []
        done = self.at.batches + steps * hvd.size()
        # Not after the last step of an epoch, because its end is committed at once.
        if self.every and steps % self.every == 0 and self.data.total() - done >= hvd.size():
            self._keep(replace(self.at, batches=done), self._so_far, counts_of(self.model))

    def batch_ended_unseen(self) -> None:
        """Count a step that Keras does not see: this rank has stopped, but takes the steps that other ranks have
        begun."""
        self.batch_ended(self._steps + int(self.model.steps_per_execution))

    def epoch_ended(self, epoch: int, taken: Any) -> None:
        left = self.data.total() - self.at.batches - self._steps * hvd.size()
        self.at = Place(epoch + 1, order=self.at.order + (self.data.begun_in_an_epoch() if left < hvd.size() else 1))
        self._so_far = _added(self.history, taken)
        if not self.model.stop_training:  # after the last part `fit` is over, and is committed as a whole
            self._keep(self.at, self._so_far, [])

    def _keep(self, place: Place, history: dict[str, Any], counts: list[Any]) -> None:
        commit = commits.agreed()
        commit.fit = {
            "place": asdict(place),
            "history": history,
            "counts": counts,
            "callbacks": callback_state.of(self.callbacks),
        }
        commit.models[self.name] = state_of(self.model, self.rates)
        commit_or_begin_again()


def commit_or_begin_again() -> None:
    """Store the commit. If hosts were added or are to be removed, all ranks restart with it."""
    restart.check()
    commits.keep()
    if reduced_on_host(float(launcher.hosts_have_changed()), hvd.Max, "hosts") > 0:
        if hvd.size() > 1:
            hvd.shutdown()  # all ranks at once, so that no rank sees a connection break
        restart.begin("hosts were added or removed")


def say_resumed(where: str) -> None:
    """Print, once after each restart, why training paused, for how long, and where it continues."""
    global _said
    before = restart.before()
    if hvd.rank() == 0 and not _said and before.times:
        ranks = "1 rank goes on" if hvd.size() == 1 else f"{hvd.size()} ranks go on"
        say.line(f"{before.why}; {ranks} from {where} after {restart.paused_ns() / 1e9:.1f} s")
    _said = True
