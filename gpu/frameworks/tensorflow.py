

def tensorflow_step():
    os.environ.setdefault("TF_FORCE_GPU_ALLOW_GROWTH", "true")   # it would take all of the memory
    tf = imported("tensorflow")
    import numpy
    doing("tf.config.list_physical_devices()")
    devices = tf.config.list_physical_devices("GPU")
    if not devices:
        why = "it is built without CUDA" if not tf.test.is_built_with_cuda() else "it would compute on the CPU without a word: a library that it opens is missing or too old, as its messages say"
        failed("TensorFlow %s lists no GPU; %s" % (tf.__version__, why))
    fact("tensorflow.devices", ", ".join(device.name for device in devices))
    tf.config.experimental.enable_tensor_float_32_execution(False)
    values = problem(numpy)
    wanted = reference(numpy, values)

    @tf.function(jit_compile=True)
    def train(x, y, first, second):
        with tf.GradientTape() as tape:
            tape.watch([first, second])
            loss = tf.reduce_mean(tf.square(tf.matmul(tf.nn.relu(tf.matmul(x, first)), second) - y))
        slopes = tape.gradient(loss, [first, second])
        return loss, first - RATE * slopes[0], second - RATE * slopes[1]

    doing("memory of the first device")
    with tf.device("/GPU:0"):
        on_device = [tf.constant(value) for value in values]

        def step():
            got = train(*on_device)
            got[0].numpy()   # waits
            return got

        for which, got in zip(("the first compiled step", "the last compiled step"), timed("tensorflow.step", step)):
            if any("GPU" not in value.device for value in got):
                failed("%s was not made on the GPU, but on %s" % (which, got[0].device))
            off = distance(numpy, [value.numpy() for value in got], wanted)
            judge(which, off)
    ok("TensorFlow %s on %d GPU%s: a step compiled by XLA as on the CPU, off by %.1e" % (tf.__version__, len(devices), "" if len(devices) == 1 else "s", off))


run(tensorflow_step)
