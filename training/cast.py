"""The characters of stories: kinds, names, homes, and how their facts enter a scene."""

from __future__ import annotations

from dataclasses import dataclass

from grammar import Scene

# Few enough that each becomes one token of a small vocabulary.
HE_NAMES = (  # noqa: SIM905 - a list of names reads better as words
    "Pip Tom Ben Max Leo Sam Finn Oscar Hugo Felix Theo Milo Otto Jack Noah Rufus Gus Basil Ned Alfie "
    "Bruno Frank Harry Louis Nico Percy Simon Teddy"
).split()
SHE_NAMES = (  # noqa: SIM905 - a list of names reads better as words
    "Lily Mia Anna Rosie Bella Clara Daisy Ella Fern Grace Hazel Ivy Josie Kate Luna Molly Nora Olive "
    "Ruby Tilly Willa Zoe Alma Cora Emma Flora Ida Polly"
).split()
ROBOT_NAMES = "Bolt Beep Tick Rivet Cog Dot Zip Pixel Chip Button".split()  # noqa: SIM905


@dataclass(frozen=True)
class Kind:
    """One sort of character. `hands` and `homes` keep the body and the house of a story plausible."""

    word: str
    group: str  # animal | child | robot | grownup
    hands: str
    homes: tuple[str, ...]
    tags: frozenset[str] = frozenset()
    gender: str = ""  # "he" or "she" where the word fixes it


def _kind(word: str, group: str, hands: str, homes: str, tags: str = "", gender: str = "") -> Kind:
    return Kind(word, group, hands, tuple(h.strip() for h in homes.split("/")), frozenset(tags.split()), gender)


KINDS = (
    _kind(
        "fox",
        "animal",
        "paws",
        "a den under an old oak tree / a den behind the hill / a cosy den in the forest",
    ),
    _kind("rabbit", "animal", "paws", "a burrow near the meadow / a warm burrow under the hill"),
    _kind("bear", "animal", "paws", "a cave near the river / a dry cave at the edge of the forest"),
    _kind(
        "mouse",
        "animal",
        "paws",
        "a small hole in the wall of the mill / a tiny house behind the bakery / a nest in the old barn",
        "tiny",
    ),
    _kind("squirrel", "animal", "paws", "a hollow tree / a nest high in a pine tree", "climbs"),
    _kind(
        "hedgehog",
        "animal",
        "paws",
        "a pile of dry leaves under the hedge / a small house in the garden",
        "tiny",
    ),
    _kind("cat", "animal", "paws", "a basket in the old bakery / a little house by the harbor", "climbs"),
    _kind("kitten", "animal", "paws", "a basket near the stove / a box in the quiet bookshop", "climbs young"),
    _kind("dog", "animal", "paws", "a kennel beside the farmhouse / a small house at the end of the lane"),
    _kind(
        "puppy",
        "animal",
        "paws",
        "a kennel behind the farmhouse / a blue house at the end of the street",
        "young",
    ),
    _kind("badger", "animal", "paws", "a deep burrow under the beech trees / a tidy burrow near the stream"),
    _kind("otter", "animal", "paws", "a snug den on the bank of the river / a den beside the lake", "swims"),
    _kind("beaver", "animal", "paws", "a lodge in the middle of the pond / a lodge by the river", "swims"),
    _kind("frog", "animal", "hands", "a quiet pond full of lilies / a pond behind the mill", "swims tiny"),
    _kind(
        "turtle",
        "animal",
        "feet",
        "a sunny place beside the lake / a quiet corner of the garden",
        "swims slow",
    ),
    _kind("duck", "animal", "wings", "a nest in the reeds / a pond near the farm", "swims flies"),
    _kind("owl", "animal", "wings", "a hole in a tall oak tree / the tower of the old church", "flies"),
    _kind(
        "sparrow",
        "animal",
        "wings",
        "a nest under the roof of the school / a nest in the apple tree",
        "flies tiny",
    ),
    _kind(
        "crow",
        "animal",
        "wings",
        "a nest at the top of a tall pine tree / a nest on the roof of the old mill",
        "flies",
    ),
    _kind("hen", "animal", "wings", "a red henhouse on the farm / a little henhouse behind the barn", "", "she"),
    _kind(
        "goat",
        "animal",
        "hooves",
        "a stable on the side of the mountain / a green field near the village",
        "climbs",
    ),
    _kind("pony", "animal", "hooves", "a stable on the farm / a green field beside the road"),
    _kind("donkey", "animal", "hooves", "an old stable behind the inn / a field near the mill", "slow"),
    _kind("lamb", "animal", "hooves", "a green field below the hills / a meadow near the farm", "young"),
    _kind("pig", "animal", "feet", "a clean sty on the farm / a yard behind the barn"),
    _kind(
        "elephant",
        "animal",
        "feet",
        "a grassy place near the river / a shady place among the tall trees",
        "big",
    ),
    _kind("monkey", "animal", "hands", "a tall tree in the jungle / a treehouse near the river", "climbs"),
    _kind("penguin", "animal", "wings", "a land of ice and snow / a little house made of snow", "swims"),
    _kind("lion", "animal", "paws", "a shady place under the thorn trees / a rocky den on the plain", "big"),
    _kind(
        "dragon",
        "animal",
        "claws",
        "a warm cave high in the mountains / a cave behind the waterfall",
        "big flies",
    ),
    _kind(
        "boy",
        "child",
        "hands",
        "a small house at the edge of the village / a white house by the sea / "
        "a farmhouse in the valley / a tall house in the town",
        "",
        "he",
    ),
    _kind(
        "girl",
        "child",
        "hands",
        "a small house at the edge of the village / a yellow house near the harbor / "
        "a farmhouse in the valley / a narrow house in the town",
        "",
        "she",
    ),
    _kind("boy", "child", "hands", "a cottage near the forest / a room above the bakery", "", "he"),
    _kind("girl", "child", "hands", "a cottage near the forest / a room above the toy shop", "", "she"),
    _kind(
        "robot",
        "robot",
        "hands",
        "a quiet workshop at the end of the street / an old barn full of tools / "
        "a small lighthouse / a busy railway station",
        "metal",
    ),
    _kind("robot", "robot", "hands", "a little shop full of clocks / a garden behind the school", "metal"),
    _kind("baker", "grownup", "hands", "a small bakery on the market square / a warm house behind the bakery"),
    _kind("farmer", "grownup", "hands", "a farmhouse near the river / a red farmhouse on the hill"),
    _kind("gardener", "grownup", "hands", "a cottage full of flowers / a little house behind the park"),
    _kind("fisherman", "grownup", "hands", "a wooden house by the harbor / a hut near the sea", "", "he"),
    _kind("miller", "grownup", "hands", "an old mill beside the stream / a mill on the windy hill"),
    _kind("tailor", "grownup", "hands", "a narrow shop in the old town / a little house near the bridge"),
    _kind("shepherd", "grownup", "hands", "a stone hut in the hills / a cottage below the mountain"),
    _kind("painter", "grownup", "hands", "a bright room at the top of a tall house / a small house by the lake"),
    _kind("princess", "grownup", "hands", "a castle on a green hill / a tall white castle", "", "she"),
    _kind("prince", "grownup", "hands", "a castle beside the lake / a castle of grey stone", "", "he"),
    _kind("wizard", "grownup", "hands", "a crooked tower in the forest / a tower full of books", "", "he"),
    _kind("knight", "grownup", "hands", "a castle on a green hill / a small stone house near the castle"),
)

TRAITS: dict[str, tuple[str, ...]] = {
    "brave": (
        "{He} was not afraid of [the dark|thunder|tall trees|strange noises].",
        "[Everyone|The neighbors] said that {he} was the bravest {k} for miles around.",
        "When others ran away, {n} always stayed.",
    ),
    "curious": (
        "{He} asked [a hundred|a lot of|many] questions every day.",
        "{He} always wanted to know what was behind the next [hill|door|corner].",
        "{He} looked under every [stone|leaf] and into every [hole|box].",
    ),
    "kind": (
        "{He} always shared {his} [lunch|supper] with anyone who was hungry.",
        "{He} never walked past anyone who needed help.",
        "[Everyone|All the neighbors] liked {him}, because {he} was kind to all.",
    ),
    "shy": (
        "{He} spoke so softly that {he} was hard to hear.",
        "When [strangers|visitors] came, {he} liked to hide behind [the door|a bush].",
        "{He} found it hard to talk to anyone new.",
    ),
    "clever": (
        "{He} could solve any riddle before [breakfast|bedtime].",
        "When there was a problem, {n} nearly always had an idea.",
        "[Everyone|All the others] came to {him} when they needed a good plan.",
    ),
    "cheerful": (
        "{He} sang from morning until evening.",
        "{He} greeted everyone with a [big|bright|warm] smile.",
        "Even on rainy days {he} found something to laugh about.",
    ),
    "gentle": (
        "{He} never raised {his} voice.",
        "Even the smallest [beetle|butterfly] was safe beside {him}.",
        "{He} was careful with every [flower|leaf] and every living thing.",
    ),
    "lonely": (
        "{He} had nobody to play with.",
        "In the evenings {he} often [talked to the moon|watched the stars alone].",
        "{He} wished for a friend more than anything else, but {he} told nobody.",
    ),
    "stubborn": (
        "Once {he} had made up {his} mind, nobody could change it.",
        "{He} never gave up, not even once.",
        "{He} always wanted to do everything alone.",
    ),
    "patient": (
        "{He} could wait for hours without a single word of complaint.",
        "{He} did everything slowly and well.",
    ),
    "lively": ("{He} could not sit still for a minute.", "{He} ran and jumped from morning until night."),
    "honest": ("{He} never told a lie.", "Everyone knew that {he} always told the truth."),
    "hopeful": (
        "{He} believed that every day could bring something good.",
        "Even when things went wrong, {he} kept hoping.",
    ),
    "careful": (
        "{He} looked twice before every step.",
        "{He} always put {his} things back in the right place.",
    ),
    "quiet": (
        "{He} liked to listen more than to talk.",
        "{He} could sit under a tree for a whole afternoon and just watch.",
    ),
    "sleepy": (
        "{He} could fall asleep anywhere, even [on a stone|in the middle of lunch].",
        "{He} yawned so often that [the birds|the neighbors] laughed.",
    ),
    "generous": ("{He} gave away more than {he} kept.", "{He} never came to visit without a small gift."),
    "playful": ("{He} turned every [chore|walk] into a game.", "{He} loved [jokes|games] and funny songs."),
    "proud": ("{He} liked to hear how [clever|quick|strong] {he} was.", "{He} did not like to ask for help."),
    "forgetful": (
        "{He} often forgot where {he} had put {his} [hat|breakfast|lantern].",
        "{He} tied knots in {his} scarf to remember things, and then forgot what the knots were for.",
    ),
}
FEARFUL_TRAITS = ("shy", "gentle", "quiet", "careful", "kind", "cheerful", "curious", "patient")

ELDERS = {
    "animal": ("mother", "father", "grandmother", "grandfather", "aunt", "uncle"),
    "child": ("mother", "father", "grandmother", "grandfather", "aunt", "uncle"),
    "robot": ("maker", "old inventor", "old clockmaker"),
    "grownup": ("mother", "grandmother", "old teacher", "grandfather"),
}
_SHE_ELDERS = ("mother", "grandmother", "aunt")


_ONE = {"paws": "paw", "hands": "hand", "wings": "wing", "hooves": "hoof", "feet": "foot", "claws": "claw"}


@dataclass(frozen=True)
class Character:
    """A character of a story: kind, name and pronouns."""

    name: str
    kind: Kind
    he: str  # "he" or "she"

    @property
    def him(self) -> str:
        """The object pronoun."""
        return "him" if self.he == "he" else "her"

    @property
    def his(self) -> str:
        """The possessive pronoun."""
        return "his" if self.he == "he" else "her"


def find_kind(word: str) -> Kind:
    """The kind of character with this word."""
    return next(k for k in KINDS if k.word == word)


def make_character(
    scene: Scene, taken: list[Character], groups: tuple[str, ...] = (), avoid: str = "", word: str = ""
) -> Character:
    """A character whose name and kind nobody in `taken` has; `avoid` lists tags that do not fit the plot."""
    banned = set(avoid.split())
    if word:
        kind = find_kind(word)
    else:
        words = {c.kind.word for c in taken}
        kind = scene.pick(
            [k for k in KINDS if k.word not in words and not banned & k.tags and (not groups or k.group in groups)]
        )
    he = kind.gender or scene.pick(("he", "she"))
    # Two characters of different gender keep the pronouns of a story clear, so that is the usual case.
    if taken and not kind.gender and scene.chance(0.6):
        he = "she" if taken[0].he == "he" else "he"
    pool = HE_NAMES if he == "he" else SHE_NAMES
    if kind.group == "robot" and scene.chance(0.7):
        pool = ROBOT_NAMES
    names = {c.name for c in taken}
    return Character(scene.pick([n for n in pool if n not in names]), kind, he)


def introduce(scene: Scene, who: Character, prefix: str = "") -> None:
    """Set the facts n, k, r (a changing reference), he, him, his, himself, hands, home under `prefix`."""

    def refer() -> str:
        return who.name if scene.chance(0.6) else "the " + who.kind.word

    home = scene.pick(who.kind.homes)
    facts = {
        "n": who.name,
        "k": who.kind.word,
        "r": refer,
        "he": who.he,
        "him": who.him,
        "his": who.his,
        "himself": "himself" if who.he == "he" else "herself",
        "hands": who.kind.hands,
        "home": home,
        "hands1": _ONE[who.kind.hands],
    }
    scene.set(**{prefix + key: value for key, value in facts.items()})


def introduce_elder(scene: Scene, who: Character) -> None:
    """A relative or teacher of `who`: facts elder ("her uncle"), theelder ("her uncle" again), ehe, ehis."""
    word = scene.pick(ELDERS[who.kind.group])
    she = word in _SHE_ELDERS or (word not in ("father", "grandfather", "uncle") and scene.chance(0.5))
    scene.set(
        elder=who.his + " " + word if not word.startswith("old") or who.kind.group == "grownup" else "the " + word,
        ehe="she" if she else "he",
        ehim="her" if she else "him",
        ehis="her" if she else "his",
    )
