from contextlib import AbstractContextManager
from typing import Any

def _disable_current_modes() -> AbstractContextManager[Any]: ...
