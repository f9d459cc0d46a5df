"""The screen Storage: what dead-letter topics hold; archive and purge."""

from __future__ import annotations

from starlette.datastructures import FormData
from starlette.requests import Request
from starlette.responses import Response

from keepfast.core.errors import KeepfastError
from keepfast.desk_page.screens import DeskBackend, Screens, local, redirect, whole
from keepfast.desk_page.tokens import DeskUser


class StorageScreen:
    """Any thread may call it."""

    def __init__(self, backend: DeskBackend, screens: Screens) -> None:
        self._desk = backend.desk
        self._storage = backend.storage
        self._screens = screens

    def show(self, request: Request, user: DeskUser) -> Response:
        topics = self._storage.topics()
        return self._screens.render(
            request,
            "storage.html",
            user=user,
            active="storage",
            topics=topics,
            letters=sum(one.letters for one in topics),
            purgeable=sum(one.purgeable for one in topics),
            with_discarded=sum(one.with_discarded for one in topics),
            archive=self._storage.place,
            command=" ".join(["keepfast dlq purge", *sorted(self._desk.options.topics)[:1], "--dry-run"]),
            live="/live",
        )

    def purge(self, request: Request, user: DeskUser, form: FormData) -> Response:  # noqa: ARG002 - as every action
        acting, confirmed = self._desk.acting_as(user.name, "page"), whole(str(form.get("count", "0")))
        try:
            number = self._storage.purge(acting, discarded=bool(form.get("discarded")), confirmed=confirmed)
        except KeepfastError as error:
            return redirect("/storage", refused=str(error))
        return redirect("/storage", done="purged", n=number)

    def archive(self, request: Request, user: DeskUser, form: FormData) -> Response:  # noqa: ARG002 - as every action
        back = local(str(form.get("back", "/")))
        acting, why = self._desk.acting_as(user.name, "page"), str(form.get("why", ""))[:1_000]
        try:
            number = self._storage.archive(acting, self._screens.chosen(form), why=why)
        except KeepfastError as error:
            return redirect(back, refused=str(error))
        return redirect(back, done="archived", n=number)
