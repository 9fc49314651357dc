"""One request on its way through the server: who asks, and what it turned out to be.

The guard makes one a request and puts it into the scope's state as `visit`; the doors fill it in;
the audit trail is written from it. It never holds a query, a text or a token.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal
from uuid import uuid4

from engine.authorization import ANONYMOUS, Principal
from engine.errors import OverloadedError
from engine.ids import id_fault

Kind = Literal["refused", "protocol", "search", "read", "explain", "invalid"]

_IDS = ("knowledge_base_id", "knowledge_item_id", "knowledge_revision_id")


@dataclass(slots=True)
class Visit:
    """A request. The only mutable record here: each field is set once, by who finds it out.

    Attributes:
        request_id: unique, made here; the response's `Octavo-Request-Id`.
        principal: the verified caller.
        kind: what it is; `protocol` is a message that asks for no knowledge.
        outcome: `ok`, or the code of the error that was answered.
        reason: why a credential was refused, in fixed words.
        asked: the ids that were asked for.
        answered: the ids that were answered, in order.
        missing_scope: the scope whose lack was answered.
        overload: set when the caller asks too much: to be answered instead of any work.
    """

    request_id: str = field(default_factory=lambda: uuid4().hex)
    principal: Principal = ANONYMOUS
    kind: Kind = "protocol"
    outcome: str = "ok"
    reason: str = ""
    asked: dict[str, str] = field(default_factory=dict)
    answered: list[dict[str, str]] = field(default_factory=list)
    missing_scope: str = ""
    overload: OverloadedError | None = None

    def note_arguments(self, arguments: Mapping[str, Any], kind: Kind | None = None) -> None:
        """Note what is asked: the kind, and of the ids those that have the form of one."""
        given = {name: arguments.get(name) for name in _IDS}
        self.kind = kind or ("read" if given["knowledge_item_id"] else "search")
        self.asked = {
            name: value
            for name, value in given.items()
            if isinstance(value, str) and value and id_fault(value) is None
        }

    def note_answer(self, body: Mapping[str, Any]) -> None:
        """Note the ids of an answer of the contract, and the code of an error."""
        error = body.get("error")
        if isinstance(error, Mapping):
            self.outcome = str(error.get("code"))
            return
        self.outcome = "ok"
        results = body.get("results")
        listed = results if isinstance(results, list) else [body]
        self.answered = [
            {name: each[name] for name in _IDS if isinstance(each.get(name), str)}
            for each in listed
            if isinstance(each, Mapping)
        ]
