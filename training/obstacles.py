"""The obstacles to a wish, and the help that gets the hero past them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Obstacle:
    """`a` introduces it, `the` names it again; `help` is what a helper shows or gives."""

    a: str
    the: str
    trouble: tuple[str, ...]
    attempt: tuple[str, ...]
    advice: tuple[str, ...]
    solve: tuple[str, ...]
    seasons: tuple[str, ...] = ()
    avoid: str = ""


OBSTACLES = (
    Obstacle(
        "a wide river",
        "the river",
        ("The water was fast and cold, and there was no bridge.", "Nobody could jump so far."),
        (
            "{He} put one foot into the water and pulled it out again at once.",
            "{He} threw in a branch, and the water carried it away.",
        ),
        (
            "There are flat stones under the willow. I will show you the way",
            "Behind the bend the water is low, and a fallen tree lies across it",
        ),
        (
            "Step by step they crossed the river, and soon they stood on the other side.",
            "{Fr} went first, {r} followed, and in the end both were safe and dry on the other side.",
        ),
        avoid="swims flies",
    ),
    Obstacle(
        "a dark forest",
        "the forest",
        (
            "The trees stood so close together that no light came through.",
            "The path split into many small paths.",
        ),
        (
            "{He} walked in a circle and came back to the same old tree three times.",
            "{He} took ten steps and could no longer see {his} own {hands}.",
        ),
        (
            "Follow the moss on the trees, and you will never walk in a circle",
            "Look for the white stones. They mark the right path",
        ),
        (
            "Together they followed the signs, and soon the light shone between the trees.",
            "{Fr} walked beside {r} until the last dark tree was behind them.",
        ),
    ),
    Obstacle(
        "a thick fog",
        "the fog",
        (
            "It was white and wet, and {he} could not see the path.",
            "Everything was grey, and even the birds were silent.",
        ),
        (
            "{He} called, but only {his} own voice came back.",
            "{He} took a few steps and bumped into a fence.",
        ),
        (
            "Stay close to me. I know every stone here",
            "Listen to the stream. It always runs down to the road",
        ),
        (
            "They went slowly, side by side, and at last the fog opened like a curtain.",
            "{Fr} led the way, and bit by bit the fog grew thin.",
        ),
        seasons=("autumn", "winter", "spring"),
    ),
    Obstacle(
        "a steep cliff",
        "the cliff",
        ("It was as high as a tower and as smooth as glass.", "There were no steps and no ladder."),
        (
            "{He} tried to climb, but {he} slid back down again and again.",
            "{He} looked for a way around, but there was none.",
        ),
        ("Behind the thorn bush there is a narrow stair", "I have a long rope. We can pull each other up"),
        (
            "Slowly they went up, and neither of them looked down.",
            "With the help of {fr}, {r} reached the top before noon.",
        ),
        avoid="flies climbs",
    ),
    Obstacle(
        "a broken bridge",
        "the bridge",
        ("Half of the boards were gone.", "The storm had carried the middle of the bridge away."),
        (
            "{He} put one foot on the first board, and it cracked.",
            "{He} tried to push a log across, but it was too heavy for one alone.",
        ),
        (
            "If we carry the log together, it will reach",
            "There are new boards behind the barn. Let us mend the bridge",
        ),
        (
            "They worked side by side, and after an hour they could walk across.",
            "Together they laid a strong log over the gap, and it held.",
        ),
        avoid="flies swims",
    ),
    Obstacle(
        "a tall gate",
        "the gate",
        ("It was locked, and the key was missing.", "A sign said: Closed."),
        ("{He} knocked, but nobody came.", "{He} pushed with all {his} might, but it did not move."),
        (
            "The key hangs on a nail behind the ivy",
            "You only have to ask politely. The gatekeeper does not hear well, so ask loudly",
        ),
        (
            "The gate swung open with a long squeak.",
            "A moment later they were through, and {n} bowed to say thanks.",
        ),
        avoid="flies",
    ),
    Obstacle(
        "a crossroads without a sign",
        "the crossroads",
        (
            "Four roads went in four directions, and they all looked the same.",
            "The old sign had fallen into the grass, and the rain had washed off the words.",
        ),
        (
            "{He} tried the first road, but it ended at a wall.",
            "{He} tossed a leaf into the air, but the wind did not know the way either.",
        ),
        (
            "Take the road where the ground is worn by many feet",
            "Walk toward the tall poplar, and keep the sun on your left",
        ),
        (
            "They took the road together, and it was the right one.",
            "{N} did as {fr} said, and the road led straight on.",
        ),
    ),
    Obstacle(
        "a muddy swamp",
        "the swamp",
        (
            "With every step {his} feet sank a little deeper.",
            "The ground was soft and wet and made strange noises.",
        ),
        ("{He} lost {his} balance and fell into the mud.", "{He} tried to run, but the mud held {him} fast."),
        (
            "Step only where the tall grass grows",
            "Take my walking stick, and feel the ground before each step",
        ),
        (
            "From one tuft of grass to the next they went, and {soon} the ground was dry again.",
            "{Fr} pulled, {r} pushed, and with a loud plop they were free.",
        ),
        seasons=("spring", "summer", "autumn"),
        avoid="flies swims",
    ),
    Obstacle(
        "a great heap of snow",
        "the snow",
        ("It was higher than a house and blocked the whole road.", "The wind had piled it up in the night."),
        (
            "{He} dug until {his} {hands} were cold, but the heap did not get smaller.",
            "{He} tried to climb over it and sank in up to {his} ears.",
        ),
        (
            "Two can dig faster than one",
            "There is a tunnel that the rabbits made. It is narrow, but it is dry",
        ),
        (
            "Soon they had made a path, and their cheeks were warm from the work.",
            "They crawled through to the other side, white from head to toe, and laughed.",
        ),
        seasons=("winter",),
        avoid="metal",
    ),
    Obstacle(
        "a grumpy goose",
        "the goose",
        ("She stood in the middle of the path and hissed.", '"Nobody passes here!" the goose shouted.'),
        (
            "{He} tried to sneak past, but the goose spread her wings.",
            "{He} shouted back, and that made the goose even angrier.",
        ),
        (
            "She is only hungry and tired. Be kind to her",
            "She guards her eggs. Tell her that you will walk softly",
        ),
        (
            "{N} spoke to the goose in a friendly voice, and she stepped aside.",
            "The goose looked surprised, and then she let them pass and even wished them a good day.",
        ),
    ),
    Obstacle(
        "a sudden storm",
        "the storm",
        (
            "Thunder rolled, and the rain fell like a curtain.",
            "The wind was so strong that {he} could not walk.",
        ),
        (
            "{He} hid under a bush, but the rain came through the leaves.",
            "{He} held on to a tree and called for help.",
        ),
        ("Come into my house until it is over", "There is a dry cave behind the bushes. Come with me"),
        (
            "They sat close together and told each other stories until the sun came back.",
            "When the storm was over, a fresh wind blew, and the way was free.",
        ),
        seasons=("spring", "summer", "autumn"),
    ),
    Obstacle(
        "a high stone wall",
        "the wall",
        ("It was far too high for {him}.", "It went on and on, and there was no door in sight."),
        (
            "{He} jumped as high as {he} could, but it was no use.",
            "{He} piled up some stones, but they fell down again.",
        ),
        ("Climb onto my back, and then pull me up", "There is a hole behind the ivy, just big enough for us"),
        (
            "One, two, three, and they were over the wall.",
            "A moment later they were on the other side, dusty but happy.",
        ),
        avoid="flies climbs big",
    ),
)
