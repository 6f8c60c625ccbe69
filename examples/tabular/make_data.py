#!/usr/bin/env python3
"""Writes train.csv and test.csv: flats with their prices, drawn at random by a formula. Python's generator is the same everywhere."""

import csv
import random
from pathlib import Path

CITIES = {"Aarau": (20, 2.0), "Bern": (60, 3.0), "Chur": (35, 2.4), "Davos": (140, 4.5)}  # base and price of a m2
NOISE = 15  # standard deviation of a price


def flat(draw):
    city = draw.choice(list(CITIES))
    base, rate = CITIES[city]
    area = round(draw.uniform(25, 180), 1)
    age = draw.randrange(0, 90)
    garage = draw.random() < 0.4
    price = base + rate * area * (1 - 0.005 * age) + 30 * garage + draw.gauss(0, NOISE)
    known_age = "" if draw.random() < 0.05 else age  # some cells are empty
    return [city, area, known_age, str(garage).lower(), round(price, 1)]


def main():
    draw = random.Random(1)
    for name, rows in (("train.csv", 1200), ("test.csv", 300)):
        with open(Path(__file__).parent / name, "w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(["city", "area", "age", "garage", "price"])
            writer.writerows(flat(draw) for _ in range(rows))


if __name__ == "__main__":
    main()
