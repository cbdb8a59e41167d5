"""python -m trireme"""
from . import main

main()
