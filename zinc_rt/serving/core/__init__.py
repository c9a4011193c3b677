"""The engine's side of serving: requests, their queue, and the loop of steps."""

from zinc_rt.serving.core.engine_core import EngineCore
from zinc_rt.serving.core.errors import CoreIntegrityError, DuplicateRequest, GrammarUnavailable, PromptNeverFits
from zinc_rt.serving.core.options import CoreOptions, Matcher, Vocabulary

__all__ = [
    "CoreIntegrityError",
    "CoreOptions",
    "DuplicateRequest",
    "EngineCore",
    "GrammarUnavailable",
    "Matcher",
    "PromptNeverFits",
    "Vocabulary",
]
