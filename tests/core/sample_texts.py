"""Texts of many kinds and languages."""

import base64
import json
import random
import re

R = random.Random(11)
BYTES = bytes(R.randrange(256) for _ in range(3_000))
LEVELS = ("INFO", "WARN", "ERROR")
SAMPLES = {
    "en": """I keep a log of everything the agent did, because the day after nobody remembers why a file was
        changed. Most of the time it is boring reading. Last week, though, it told us that a test had been
        failing since Tuesday, and that the "fix" had only made it slower. We took it back, wrote a smaller
        one, and went home early. That is what a log is for: not to blame anyone, but to know.""",
    "code": re.sub(r"^    ", "", '''
    class Ring:
        """A buffer that forgets its oldest item."""

        def __init__(self, size: int) -> None:
            self._items: list[str | None] = [None] * size
            self._next = 0

        def push(self, item: str) -> str | None:
            old, self._items[self._next] = self._items[self._next], item
            self._next = (self._next + 1) % len(self._items)
            return old

    def main(argv: list[str]) -> int:
        ring = Ring(size=int(argv[1]) if len(argv) > 1 else 16)
        for line in sys.stdin:
            if (gone := ring.push(line.rstrip("\\n"))) is not None:
                print(f"dropped {gone!r}", file=sys.stderr)
        return 0
    ''', flags=re.MULTILINE),
    "json": json.dumps([{"reservation_id": f"{R.randrange(10**6):06X}", "user": {"name": "Ann Lee", "age": R.randrange(99)},
             "flights": [{"origin": "JFK", "destination": "SEA", "date": "2024-05-20", "price": R.randrange(900)}],
             "status": None, "paid": True} for _ in range(8)]),
    "log": "\n".join(f"2026-11-15T0{R.randrange(9)}:{R.randrange(60):02}:{R.randrange(60):02}.{R.randrange(999):03}Z {R.choice(LEVELS)} "
             f"worker[{R.randrange(9999)}] handled request id={R.randrange(1 << 32):x} in {R.randrange(900)} ms" for _ in range(20)),
    "base64": base64.b64encode(BYTES).decode(),
    "hex": BYTES[:1_200].hex(),
    "zh": "我把代理做过的每一件事都记在日志里，因为第二天没有人记得文件为什么被修改。大多数时候读起来很无聊，但上周它告诉我们，有一个测试从星期二开始就一直失败，而所谓的修复只是让它变得更慢。我们撤销了它，写了一个更小的，然后早早回家了。",
    "ja": "エージェントが行ったことはすべてログに残しています。翌日になると、なぜファイルが変更されたのか誰も覚えていないからです。たいていは退屈な読み物ですが、先週はテストが火曜日から失敗し続けていることを教えてくれました。私たちはそれを取り消し、もっと小さな修正を書いて、早めに帰りました。",
    "ko": "나는 에이전트가 한 모든 일을 로그에 남긴다. 다음 날이 되면 파일이 왜 바뀌었는지 아무도 기억하지 못하기 때문이다. 대부분은 지루한 읽을거리지만, 지난주에는 테스트가 화요일부터 계속 실패하고 있다는 것을 알려 주었다. 우리는 그것을 되돌리고 더 작은 수정을 작성한 뒤 일찍 집에 갔다.",
    "ar": "أحتفظ بسجل لكل ما فعله الوكيل، لأن أحداً لا يتذكر في اليوم التالي لماذا تم تغيير الملف. في معظم الأحيان تكون القراءة مملة، لكنه أخبرنا الأسبوع الماضي أن أحد الاختبارات يفشل منذ يوم الثلاثاء، وأن الإصلاح جعله أبطأ فقط. لقد تراجعنا عنه وكتبنا إصلاحاً أصغر وعدنا إلى المنزل مبكراً.",
    "th": "ฉันเก็บบันทึกทุกอย่างที่ตัวแทนทำ เพราะวันรุ่งขึ้นไม่มีใครจำได้ว่าทำไมไฟล์ถึงถูกเปลี่ยน ส่วนใหญ่แล้วมันน่าเบื่อ แต่เมื่อสัปดาห์ที่แล้วมันบอกเราว่าการทดสอบล้มเหลวตั้งแต่วันอังคาร เราจึงย้อนกลับและเขียนการแก้ไขที่เล็กกว่า แล้วกลับบ้านเร็ว",
    "ru": "Я веду журнал всего, что сделал агент, потому что на следующий день никто не помнит, почему файл был изменён. Обычно это скучное чтение, но на прошлой неделе он сообщил нам, что тест не проходит со вторника, а исправление только замедлило его. Мы отменили его, написали другое, поменьше, и рано ушли домой.",
    "emoji": "".join(R.choice("😀😂🎉🚀🔥✨🐍💡📦🧪✅❌🤖🌍🙏👍") for _ in range(120)),
}  # fmt: skip


# What tools print besides: here the estimate may be rougher, but never far too low.
ODD = {
    "regex": r"^(?:[\w.+-]+@(?:[a-z0-9-]+\.)+[a-z]{2,}|\b\d{1,3}(?:\.\d{1,3}){3}\b)$" "\n" * 10,
    "colours": "".join(f"\x1b[1;3{n % 8}mPASS\x1b[0m tests/test_parser.py::test_{n}\n" for n in range(40)),
    "coloured dots": "\x1b[1;31m.\x1b[0m" * 100,
    "spinner": "\r⠋⠙⠹⠸⠼⠴⠦⠧ installing" * 60,
    "art": "\n".join("".join(R.choice("/\\|_-()<>.'`^~*#@%&+= ") for _ in range(60)) for _ in range(20)),
    "tree": "\n".join(R.choice(("├── ", "│   ├── ", "└── ")) + R.choice(("src", "parser.py", "a.json")) for _ in range(80)),
    "mathematics": "".join(R.choice("∀∃∈∉∑∏√∞≈≠≤≥⊂⊃∪∩→⇒⇔∂∇") for _ in range(300)),
    "full width": "ＦＵＬＬＷＩＤＴＨ" * 30,
    "am": "ሰላም ለዓለም እንዴት ነህ ዛሬ አየሩ ጥሩ ነው " * 10,
    "bo": "བོད་སྐད་ནི་བོད་མིའི་སྐད་ཡིག་ཡིན། " * 10,
    "letters": "".join(R.choice("abcdefghijklmnopqrstuvwxyz") for _ in range(1_000)),
}  # fmt: skip
