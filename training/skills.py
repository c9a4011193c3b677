"""The skills that heroes learn: the first failure, a good tip, the success in the end."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Skill:
    """`do` follows "learn to"; `doing` follows "good at"."""

    do: str
    doing: str
    fail: tuple[str, ...]
    tip: tuple[str, ...]
    success: tuple[str, ...]
    avoid: str = ""
    seasons: tuple[str, ...] = ()


SKILLS = (
    Skill(
        "swim",
        "swimming",
        ("{He} splashed wildly and swallowed a lot of water.", "{He} jumped in and sank like a stone."),
        ("Breathe slowly and let the water carry you", "Kick with your legs like a frog"),
        ("{N} swam all the way to the other side of the pond.", "{He} floated like a leaf and laughed."),
        avoid="swims metal",
        seasons=("summer", "spring"),
    ),
    Skill(
        "whistle",
        "whistling",
        ("Only air came out.", "It sounded like a leaky kettle."),
        ("Make your mouth as small as a cherry", "Do not blow so hard. Think of a bird"),
        ("A clear, bright note flew over the fields.", "{He} whistled a whole song, and {birds} answered."),
        avoid="metal",
    ),
    Skill(
        "bake bread",
        "baking",
        (
            "The bread was as hard as a stone.",
            "There was flour on the floor, on the walls and on {his} nose, but there was no bread.",
        ),
        ("Give the dough time to rest", "Dough likes warm hands and a calm heart"),
        ("The bread came out of the oven golden and soft.", "The whole street smelled of fresh bread."),
        avoid="big",
    ),
    Skill(
        "paint",
        "painting",
        (
            "The tree looked like a broom, and the house looked like a shoe.",
            "All the colors ran together into one brown puddle.",
        ),
        (
            "Look for a long time before you touch the brush",
            "Paint what you love, not what you think you should paint",
        ),
        (
            "The picture showed the hills in the evening light, and it was beautiful.",
            "Everyone could see at once what the picture was, and everyone smiled.",
        ),
    ),
    Skill(
        "dance",
        "dancing",
        (
            "{He} stepped on {his} own feet and fell over a chair.",
            "{He} turned left when everyone turned right.",
        ),
        ("Listen to the drum, and let your feet listen too", "Forget who is watching, and count to four"),
        ("{N} danced as lightly as a feather.", "{His} feet knew every step, and {he} did not fall once."),
    ),
    Skill(
        "read",
        "reading",
        (
            "The letters looked like little black beetles that ran away.",
            "{He} held the book upside down and did not even notice.",
        ),
        ("Start with one letter and make it your friend", "Read one word each day, and then two"),
        (
            "{N} read a whole page aloud, and nobody wanted to miss a word.",
            "Suddenly the letters turned into words, and the words turned into a story.",
        ),
    ),
    Skill(
        "fly a kite",
        "flying a kite",
        ("The kite fell into a bush.", "The string was tied in seven knots, and the kite hung in a tree."),
        ("Wait for the wind, and then run against it", "Give the kite more string and do not pull so hard"),
        (
            "The kite rose higher and higher until it was a tiny spot in the sky.",
            "The wind took the kite gently, and it danced above the hill.",
        ),
        seasons=("spring", "autumn", "summer"),
    ),
    Skill(
        "play the flute",
        "playing the flute",
        ("It squeaked so loudly that the cat ran away.", "Not a single note was right."),
        ("Play one note until it is round and soft", "Breathe with your belly, not with your cheeks"),
        ("A sweet tune floated over the roofs.", "The song was so lovely that people stopped in the street."),
    ),
    Skill(
        "climb trees",
        "climbing trees",
        (
            "{He} slid down the trunk and landed in the grass.",
            "{He} got as far as the first branch and did not dare to move.",
        ),
        ("Look up and not down", "Always hold on with three {hands} and feet, and move only one"),
        (
            "{N} sat on the highest branch and could see over the whole village.",
            "Branch by branch {he} went up, right to the top.",
        ),
        avoid="climbs flies metal big",
    ),
    Skill(
        "ride a bicycle",
        "riding a bicycle",
        ("{He} wobbled and fell into the hedge.", "The bicycle went one way, and {n} went the other way."),
        ("Look far ahead and keep moving", "I will hold the saddle until you tell me to let go"),
        (
            "{N} rode all the way around the market square without falling.",
            "The wheels hummed, and the wind blew in {his} face.",
        ),
        avoid="tiny big",
    ),
    Skill(
        "make soup",
        "cooking",
        ("The soup was so salty that nobody could eat it.", "The soup was black, and so was the pot."),
        ("Taste before you add more", "Use a small fire and a lot of patience"),
        (
            "The soup was warm and tasty, and everyone wanted a second bowl.",
            "Nobody left a single drop in the pot.",
        ),
        avoid="big",
    ),
    Skill(
        "tell stories",
        "telling stories",
        (
            "{He} forgot the end, and everyone fell asleep.",
            "{He} mixed up the wolf and the grandmother, and nobody understood anything.",
        ),
        (
            "Tell it to just one friend, as if nobody else were there",
            "Think of the end first, and then walk toward it",
        ),
        (
            "Everyone listened with open mouths until the very last word.",
            'When the story was over, they all cried: "One more!"',
        ),
    ),
    Skill(
        "skate",
        "skating",
        ("{He} slipped and sat down on the ice with a bump.", "{His} legs went in two different directions."),
        ("Bend your knees and push to the side", "Hold my scarf, and I will pull you at first"),
        (
            "{N} glided over the pond in a big, smooth circle.",
            "{He} even skated backward, and everyone clapped.",
        ),
        avoid="flies swims",
        seasons=("winter",),
    ),
    Skill(
        "juggle",
        "juggling",
        (
            "One ball hit {him} on the nose, and two rolled under the table.",
            "All the apples fell down at the same time.",
        ),
        (
            "Begin with one ball, and do not look at your {hands}",
            "Throw slowly, and always to the same height",
        ),
        (
            "Three balls flew through the air in a perfect circle.",
            "{He} juggled with five apples and did not drop a single one.",
        ),
    ),
    Skill(
        "knit",
        "knitting",
        ("The scarf had more holes than wool.", "{He} was wrapped in yarn from head to toe."),
        ("One stitch after the other, and no hurry", "Count quietly, and start again when you lose count"),
        (
            "The scarf was long, warm and full of color.",
            "{He} had made a fine pair of socks without a single hole.",
        ),
    ),
)
