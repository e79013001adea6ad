/// Waits until the task is cancelled.
package func waitForCancellation() async {
    let (nothing, continuation) = AsyncStream.makeStream(of: Void.self)
    // The stream has no elements; cancelling the task ends the loop.
    for await _ in nothing {}
    continuation.finish()
}
