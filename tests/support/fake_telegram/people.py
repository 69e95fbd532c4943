"""People at the other side of the Bot API: they write, press buttons and send files.

Knows what an update of theirs looks like. Refuses to know how the bot is told.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fake_telegram.messages import Json, Shown

if TYPE_CHECKING:
    from fake_telegram.api import BotApi


@dataclass(frozen=True, slots=True)
class Person:
    """Somebody who writes, presses buttons and sends files."""

    api: "BotApi"
    id: int
    name: str

    @property
    def user(self) -> Json:
        """As updates tell of them."""
        return {"id": self.id, "is_bot": False, "first_name": self.name}

    async def say(
        self,
        text: str = "",
        *,
        chat: int | None = None,
        topic: int | None = None,
        reply: Shown | None = None,
        **more: Any,
    ) -> int:
        """Write a message, here or in a group; the update's number."""
        message: Json = {"from": self.user, **({"text": text} if text else {}), **more}
        if text.startswith("/"):
            size = len(text.split(maxsplit=1)[0])
            message["entities"] = [{"type": "bot_command", "offset": 0, "length": size}]
        if reply is not None:
            message["reply_to_message"] = reply.message
        one = self.api.stand(chat or self.id, message, topic=topic, by_bot=False)
        return await self.api.put(message=one.message)

    async def press(self, one: Shown, label: str) -> str:
        """Press a button of a message; the number of the question."""
        query = f"q{one.message['chat']['id']}-{one.id}-{len(self.api.answered)}-{self.id}"
        await self.api.put(
            callback_query={
                "id": query,
                "from": self.user,
                "chat_instance": "1",
                "message": one.message,
                "data": one.buttons[label],
            }
        )
        return query

    async def photo(self, body: bytes, *, caption: str = "", chat: int | None = None) -> int:
        """Send a picture."""
        name = f"photo-{len(self.api.files)}"
        self.api.files[name] = body
        size = {"file_id": name, "file_unique_id": name, "width": 90, "height": 90}
        more: Json = {"caption": caption} if caption else {}
        return await self.say(chat=chat, photo=[{**size, "file_size": len(body)}], **more)

    async def document(self, name: str, body: bytes, *, mime: str = "", caption: str = "") -> int:
        """Send a file."""
        key = f"file-{len(self.api.files)}"
        self.api.files[key] = body
        about: Json = {"file_id": key, "file_unique_id": key, "file_name": name}
        about |= {"file_size": len(body)} | ({"mime_type": mime} if mime else {})
        more: Json = {"caption": caption} if caption else {}
        return await self.say(document=about, **more)
