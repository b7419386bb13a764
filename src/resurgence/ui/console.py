"""What all pages of a console share: the controller, its feeds, and who may open pages."""

from __future__ import annotations

from dataclasses import dataclass

from resurgence.control.controller import Controller
from resurgence.ui.access.doorkeeper import Doorkeeper
from resurgence.ui.feeds import Feeds
from resurgence.ui.shown import Shown


@dataclass(frozen=True)
class Console:
    """One per service."""

    controller: Controller
    doorkeeper: Doorkeeper
    feeds: Feeds
    shown: Shown
