"""The pages: look at sessions in a browser, slide through what a model saw, and change it.

    access         Who looks: signing in, the cookie, and what a change has to show
    change_pages   Fold, undo and pin, each with a page that asks first
    figures        What sessions cost and how full they are, read in the background
    fleet_pages    Tenants, owners and models over time, and the dearest sessions
    fleet_sums     The figures of the fleet, from usage rows and from logs
    logged_calls   The calls of a session, found near a place of its log
    page_call      One request for a page, its templates, and the headers of its answer
    pages_app      The pages as one ASGI application; those of this machine, by a ticket
    safe_text      Texts of a log made visible and bounded
    session_list   The list of sessions, in any order, page by page
    session_pages  The pages that show: sessions, one session, originals, edits, found messages
    what_if        A session replayed under other policies

`foldline ui` serves them for a local store, `foldline serve` below /ui. Every page can be read
without JavaScript; what is asked for comes from this process alone.
"""

from foldline.apps.pages.access import SignIns
from foldline.apps.pages.pages_app import PagesApp

__all__ = ["PagesApp", "SignIns"]
