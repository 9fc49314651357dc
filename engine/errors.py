"""Every error Octavo raises on purpose: one root, a stable code, safe to pickle.

Wire errors carry a code of the contract (`knowledge_...`) and may reach a caller. Operator errors
carry an `octavo_...` code and reach whoever runs a command.
"""

from __future__ import annotations


class EngineError(Exception):
    """The root of all deliberate errors.

    Attributes:
        code: stable, machine readable.
        retryable: whether the same request may succeed later, unchanged.
    """

    code = "knowledge_internal"
    retryable = False

    @property
    def parameter(self) -> str | None:
        """Return the name of the offending request parameter, if one is to blame."""
        return None


# ---------------------------------------------------------------- wire errors (contract, "Errors")


class InternalError(EngineError):
    """A fault of ours; `fault` is found again in the logs."""

    code = "knowledge_internal"

    def __init__(self, fault: str) -> None:
        super().__init__(fault)
        self.fault = fault

    def __str__(self) -> str:
        return f"internal fault {self.fault}"


class RuntimeDisabledError(EngineError):
    """The runtime switch is off."""

    code = "knowledge_runtime_disabled"
    retryable = True

    def __str__(self) -> str:
        return "the knowledge runtime is disabled"


class UnauthorizedError(EngineError):
    """No valid credential."""

    code = "knowledge_unauthorized"

    def __str__(self) -> str:
        return "a valid credential is required"


class ScopeRequiredError(EngineError):
    """The principal lacks a scope."""

    code = "knowledge_scope_required"

    def __init__(self, scope: str = "knowledge:read") -> None:
        super().__init__(scope)
        self.scope = scope

    def __str__(self) -> str:
        return f"the scope {self.scope} is required"


class InvalidRequestError(EngineError):
    """A request has the wrong shape, type or bounds. The message never repeats caller text."""

    code = "knowledge_invalid_request"

    def __init__(self, message: str, offender: str | None = None) -> None:
        super().__init__(message, offender)
        self.message = message
        self.offender = offender

    @property
    def parameter(self) -> str | None:
        """Return the name of the offending parameter."""
        return self.offender

    def __str__(self) -> str:
        return self.message


class QueryRequiredError(EngineError):
    """Neither a query nor an item was given."""

    code = "knowledge_query_required"

    def __str__(self) -> str:
        return "give a query, or a knowledge_item_id"


class ItemRequiredError(EngineError):
    """A revision id came without its item id."""

    code = "knowledge_item_required"

    @property
    def parameter(self) -> str | None:
        """Return the parameter that is missing."""
        return "knowledge_item_id"

    def __str__(self) -> str:
        return "knowledge_revision_id needs knowledge_item_id"


class ResourceUnavailableError(EngineError):
    """Missing, foreign, inactive, unpublished or mismatched: one message for all of them."""

    code = "knowledge_resource_unavailable"

    def __str__(self) -> str:
        return "the requested knowledge is not available"


class OverloadedError(EngineError):
    """Load was shed, or no shard answered before the deadline. Asking again is safe."""

    code = "knowledge_overloaded"
    retryable = True

    def __init__(self, reason: str, retry_after_s: float = 1.0) -> None:
        super().__init__(reason, retry_after_s)
        self.reason = reason
        self.retry_after_s = retry_after_s

    def __str__(self) -> str:
        return self.reason


# ---------------------------------------------------------------------------- operator errors


class OperatorError(EngineError):
    """An error for whoever runs a command: one line that says what to do."""

    code = "octavo_error"

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message

    def __str__(self) -> str:
        return self.message


class ConfigurationError(OperatorError):
    """A configuration file or option is wrong."""

    code = "octavo_configuration"


class InvalidValueError(OperatorError):
    """A stored value (title, content, id, scope) breaks a limit. Nothing was written."""

    code = "octavo_invalid_value"


class StoreError(OperatorError):
    """The store is missing, foreign or unreadable."""

    code = "octavo_store"


class NotFoundError(OperatorError):
    """A base, item, revision or generation named by a writer does not exist."""

    code = "octavo_not_found"


class StaleVersionError(EngineError):
    """A compare-and-swap lost its race. Nothing was written; read again, decide again."""

    code = "octavo_stale_version"
    retryable = True

    def __init__(self, what: str, expected: int, actual: int) -> None:
        super().__init__(what, expected, actual)
        self.what = what
        self.expected = expected
        self.actual = actual

    def __str__(self) -> str:
        return f"{self.what} has version {self.actual}, expected {self.expected}"


class ConflictError(OperatorError):
    """Something of that id exists already and differs. Nothing was written."""

    code = "octavo_conflict"


class ImmutableRevisionError(ConflictError):
    """Another content was offered under an existing revision id. Nothing was written."""

    code = "octavo_immutable_revision"


class CommitUnknownError(OperatorError):
    """Whether a commit took effect is not known: look before writing again."""

    code = "octavo_commit_unknown"


class ContentionError(OperatorError):
    """A commit was not made: other writers won every try. Nothing was written; try again."""

    code = "octavo_contention"
    retryable = True


class SegmentRefusedError(OperatorError):
    """A segment is corrupt, foreign, or of another encoder, dimension or format."""

    code = "octavo_segment_refused"

    def __init__(self, segment: str, reason: str) -> None:
        EngineError.__init__(self, segment, reason)
        self.segment = segment
        self.reason = reason
        self.message = f"segment {segment} refused: {reason}"


class GenerationNotOpenError(EngineError):
    """A replica does not hold the generation or catalog version that a query names."""

    code = "octavo_generation_not_open"
    retryable = True

    def __init__(self, generation: int) -> None:
        super().__init__(generation)
        self.generation = generation

    def __str__(self) -> str:
        return f"generation {self.generation} is not open here"


class CatalogNotHeldError(GenerationNotOpenError):
    """A replica has the generation, but not the catalog version: it is behind, or ahead."""

    code = "octavo_catalog_not_held"

    def __str__(self) -> str:
        return f"the catalog version for generation {self.generation} is not held here"


class FrameError(OperatorError):
    """A message between processes is damaged, or of another version of Octavo."""

    code = "octavo_frame"


class EncoderError(OperatorError):
    """An encoder cannot be loaded, or a text does not fit it."""

    code = "octavo_encoder"


class JavaError(OperatorError):
    """No usable Java runtime."""

    code = "octavo_java"


class StorageFullError(OperatorError):
    """No space is left; nothing is half-written."""

    code = "octavo_storage_full"
