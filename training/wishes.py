"""The wishes of heroes."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Wish:
    """`do` follows "wanted to"; `dest` follows "to", "reached" and "the way to"."""

    do: str
    dest: str
    why: tuple[str, ...]
    arrive: tuple[str, ...]
    seasons: tuple[str, ...] = ()
    avoid: str = ""


WISHES = (
    Wish(
        "see the sea",
        "the sea",
        (
            "A gull had told {him} about the blue water without end.",
            "{He} had heard that the sea was bigger than any lake.",
            "{He} had a shell in which one could hear the waves.",
        ),
        (
            "There was the sea, blue and wide, with white waves that rolled onto the sand.",
            "The waves whispered, and the salty wind blew into {his} face.",
            "{N} ran down to the water and let the waves tickle {his} feet.",
        ),
        avoid="swims",
    ),
    Wish(
        "see the snow on the high mountain",
        "the top of the mountain",
        (
            "{He} had never seen snow from close by.",
            "From {his} window {he} could see the white top of the mountain.",
        ),
        (
            "The snow was soft and cold, and it sparkled like sugar.",
            "{N} made a snowball and laughed.",
            "Far below lay the whole world, as small as a toy.",
        ),
        seasons=("spring", "summer", "autumn"),
    ),
    Wish(
        "hear the great bell of the city",
        "the city",
        (
            "{His} grandfather had told {him} that the bell sounded like thunder and honey.",
            "People said that whoever heard the bell would be happy for a year.",
        ),
        (
            "Just at noon the great bell began to ring, deep and warm.",
            "The sound went through the air like a golden wave.",
            "{N} listened until the very last note was gone.",
        ),
    ),
    Wish(
        "see the stars from the top of the hill",
        "the top of the hill",
        (
            "{He} loved the stars, but the trees around {his} home were too tall.",
            "Every night {he} tried to count the stars, but the roof was in the way.",
        ),
        (
            "The sky was full of stars, more than {he} could ever count.",
            "A shooting star flew over the hill, silent and bright.",
            "{N} lay down on {his} back and looked up for a long time.",
        ),
    ),
    Wish(
        "watch the sun rise from the old tower",
        "the old tower",
        (
            "{He} always woke up too late to see the sunrise.",
            "{He} had heard that the morning looked like fire from up there.",
        ),
        (
            "First the sky turned pink, then gold, and then the sun came up.",
            "{N} had never seen so many colors at the same time.",
            "The light crept over the fields and woke the birds.",
        ),
    ),
    Wish(
        "find the oldest tree in the forest",
        "the oldest tree",
        (
            "It was said that the oldest tree could tell stories.",
            "{He} wanted to ask the tree how the world looked long ago.",
        ),
        (
            "The oldest tree was so wide that ten friends could not have put their arms around it.",
            "Its leaves rustled as if it were telling a story.",
            "{N} laid {his} ear on the bark and listened.",
        ),
    ),
    Wish(
        "visit {his} grandmother behind the hills",
        "{his} grandmother's house",
        ("{He} had not seen her since last year.", "{He} missed her songs and her plum cake."),
        (
            "{His} grandmother opened the door and hugged {him} tightly.",
            "There was plum cake on the table, and the whole house smelled of cinnamon.",
            "They talked and sang until it was dark.",
        ),
    ),
    Wish(
        "see the big ships in the harbor",
        "the harbor",
        ("{He} had a picture of a ship on {his} wall.", "{He} dreamed of tall sails every night."),
        (
            "The ships were as tall as houses, and their white sails shone in the sun.",
            "A friendly captain waved and let {him} ring the ship's bell.",
            "Sailors sang while they carried boxes and barrels.",
        ),
    ),
    Wish(
        "ride on a train",
        "the railway station",
        (
            "{He} could hear the whistle of the train every evening.",
            "{He} wanted to feel how fast the wheels could roll.",
        ),
        (
            "The train puffed and hissed, and then the wheels began to turn.",
            "Fields and houses flew past the window like birds.",
            "The conductor gave {him} a real ticket with a hole in it.",
        ),
    ),
    Wish(
        "see the lights of the city",
        "the city",
        (
            "{He} had heard that the city glowed at night like a box of jewels.",
            "At night there was only darkness around {his} home.",
        ),
        (
            "There were lamps in every window and lanterns along every street.",
            "The lights danced in the river like a thousand fireflies.",
            "{N} turned around and around, because every side was bright.",
        ),
    ),
    Wish(
        "find the blue flower",
        "the hidden valley",
        (
            "The blue flower was said to bloom only for those who were patient.",
            "A blue flower would be the finest present for {elder}.",
        ),
        (
            "There, between two grey stones, stood a single blue flower.",
            "It smelled of rain and honey.",
            "{N} did not pick it, but sat down beside it and smiled.",
        ),
        seasons=("spring", "summer"),
    ),
    Wish(
        "drink from the silver spring",
        "the silver spring",
        (
            "The water of the silver spring was said to taste like moonlight.",
            "Old stories told that the spring made every heart light.",
        ),
        (
            "The water came out of the rock, clear and cold.",
            "It tasted of stone and mint and morning.",
            "{N} drank and felt as if {he} could sing all day.",
        ),
        avoid="metal",
    ),
    Wish(
        "dance at the summer fair",
        "the summer fair",
        (
            "{He} practiced {his} steps every evening behind the house.",
            "{He} loved music more than anything.",
        ),
        (
            "The fiddlers played, and the lanterns swung in the trees.",
            "{N} danced until the moon was high.",
            "Everybody clapped their hands when {he} jumped and turned.",
        ),
        seasons=("summer",),
    ),
    Wish(
        "sing at the harvest feast",
        "the harvest feast",
        (
            "{He} knew all the old songs by heart.",
            "{He} had a fine voice, but {he} had never sung for others.",
        ),
        (
            "{N} climbed onto a barrel and began to sing.",
            "One by one the others joined in, until everyone was singing.",
            "When the song was over, the clapping did not stop.",
        ),
        seasons=("autumn",),
    ),
    Wish(
        "find out where the river began",
        "the place where the river began",
        (
            "The river ran past {his} home, and nobody could say where it came from.",
            "{He} wanted to know who poured out so much water.",
        ),
        (
            "Between mossy stones a tiny spring bubbled out of the ground.",
            "It was hard to believe that the big river began so small.",
            "{N} put one toe into the water and laughed.",
        ),
    ),
    Wish(
        "climb to the top of the lighthouse",
        "the lighthouse",
        (
            "Every night the light of the tower shone into {his} room.",
            "{He} wondered how far one could see from up there.",
        ),
        (
            "From the top one could see the whole coast and the little white boats.",
            "The keeper showed {him} the great lamp with its shining glass.",
            "The wind sang around the tower, and {n} sang along.",
        ),
    ),
    Wish(
        "see the whales",
        "the bay of the whales",
        (
            "{He} had read that whales sang songs under the water.",
            "{He} could not believe that an animal could be as big as a house.",
        ),
        (
            "Suddenly a great grey back rose out of the water.",
            "A whale blew a fountain into the air, as high as a tree.",
            "{N} heard their song, deep and slow and beautiful.",
        ),
    ),
    Wish(
        "find a fallen star",
        "the far meadow",
        ("Last night {he} had seen a star fall from the sky.", "{He} wanted to bring the star back home."),
        (
            "In the grass lay a small stone that glowed with a soft light.",
            "It was still warm, as if it had just come from the sky.",
            "{N} held it carefully, and the light shone through {his} {hands}.",
        ),
    ),
    Wish(
        "see the valley of the butterflies",
        "the valley of the butterflies",
        (
            "{He} had once met a blue butterfly and had never forgotten it.",
            "People said the air was full of colors there.",
        ),
        (
            "Thousands of butterflies rose into the air, blue and yellow and white.",
            "One of them sat down right on {his} nose.",
            "It looked as if all the flowers had learned to fly.",
        ),
        seasons=("spring", "summer"),
    ),
    Wish(
        "read the biggest book in the world",
        "the great library",
        ("{He} had read every book at home twice.", "{He} loved stories more than cake."),
        (
            "The book was as big as a door, and its pages rustled like sails.",
            "The librarian helped {him} turn the first page.",
            "Inside there were pictures of every animal and every star.",
        ),
    ),
    Wish(
        "look at the moon through the big telescope",
        "the house of the star watcher",
        (
            "{He} wanted to know if anyone lived on the moon.",
            "{He} always left {his} window open for the moonlight.",
        ),
        (
            "Through the telescope the moon was round and bright and full of mountains.",
            "{N} waved at the moon, just in case.",
            "The star watcher told {him} the names of seven stars.",
        ),
    ),
    Wish(
        "taste wild strawberries",
        "the sunny clearing",
        (
            "{He} had heard that they were sweeter than sugar.",
            "Everyone talked about the wild strawberries, but {n} had never tried one.",
        ),
        (
            "The clearing was red with strawberries.",
            "They were small and warm and sweeter than anything {he} had ever eaten.",
            "{N} filled {his} basket and kept the best ones to share.",
        ),
        seasons=("summer",),
        avoid="metal",
    ),
    Wish(
        "skate on the frozen lake",
        "the frozen lake",
        (
            "{He} had watched the skaters from far away last winter.",
            "{He} had a pair of skates that had never been used.",
        ),
        (
            "The ice was smooth and clear as glass.",
            "At first {he} slipped, but then {he} glided like a bird.",
            "{N} drew a big circle on the ice and laughed.",
        ),
        seasons=("winter",),
    ),
    Wish(
        "see the northern lights",
        "the icy hill",
        (
            "{He} had heard that the sky itself could dance.",
            "{His} neighbor had seen them once and still talked about them.",
        ),
        (
            "Green and purple light moved over the sky like a curtain.",
            "It was so quiet that {n} could hear the snow fall.",
            "The lights danced and danced, and nobody said a word.",
        ),
        seasons=("winter",),
    ),
    Wish(
        "find a true friend",
        "the other side of the forest",
        ("It was no fun to play alone.", "{He} had many questions and nobody to ask."),
        (
            "All the way they had talked and laughed, and suddenly {n} understood.",
            "{N} did not have to look any farther, because a friend was already walking beside {him}.",
            "They looked at each other and laughed.",
        ),
    ),
    Wish(
        "find the end of the rainbow",
        "the end of the rainbow",
        (
            "After the rain a rainbow had stood over the fields.",
            "{He} hoped to find something wonderful there.",
        ),
        (
            "There was no gold, but there was a waterfall, and in it shone a small rainbow of its own.",
            "{N} put {his} {hands} into the colored light.",
            "It was better than any treasure.",
        ),
        seasons=("spring", "summer", "autumn"),
    ),
    Wish(
        "cross the lake in a little boat",
        "the lake",
        (
            "{He} had always wondered what was on the other side.",
            "{He} had once seen a tiny light on the far shore.",
        ),
        (
            "There was a little boat on the shore, and its owner was happy to lend it.",
            "The boat rocked softly, and the water was as smooth as silk.",
            "On the other side stood a field of white flowers.",
        ),
        seasons=("spring", "summer", "autumn"),
        avoid="swims big",
    ),
    Wish(
        "meet the wise old tortoise",
        "the garden of the tortoise",
        (
            "The tortoise was said to be two hundred years old.",
            "{He} had a question that nobody at home could answer.",
        ),
        (
            "The old tortoise slowly put her head out of her shell and smiled.",
            '"You have already learned the most important thing on the way here," she said.',
            "{N} thought about the journey and nodded.",
        ),
    ),
)
