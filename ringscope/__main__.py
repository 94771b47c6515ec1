import signal

# Until a verb is imported, Ctrl-C ends the process without a traceback of imports; `LazyGroup` sets it back.
if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    signal.signal(signal.SIGINT, signal.SIG_DFL)

from harness.verbs.cli import main

if __name__ == "__main__":
    main()
