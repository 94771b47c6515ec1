"""`horovodrun` that takes for granted that Gloo is built: to ask, it would import TensorFlow, 4 s of CPU."""

from horovod.runner import launch

if __name__ == "__main__":
    launch.gloo_built = lambda verbose=False: True
    launch.run_commandline()
