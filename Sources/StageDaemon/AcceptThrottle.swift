import Glibc
import NIOCore

/// Channel handler that pauses `accept` when the process or machine runs out of descriptors or memory.
///
/// Without it, such an error would end the server, or the event loop would retry `accept` in a busy loop.
final class AcceptThrottle: ChannelDuplexHandler {
    typealias InboundIn = any Channel
    typealias OutboundIn = any Channel

    private var isPaused = false

    /// Length of a pause, during which the server accepts no connection.
    private static let pause = TimeAmount.milliseconds(200)
    /// Errors of accept(2) that are temporary or concern a single connection.
    private static let temporaryErrors = [EMFILE, ENFILE, ENOBUFS, ENOMEM, ECONNABORTED]

    func errorCaught(context: ChannelHandlerContext, error: any Error) {
        guard let error = error as? IOError, Self.temporaryErrors.contains(error.errnoCode) else {
            context.fireErrorCaught(error)
            return
        }
        guard !isPaused else { return }
        isPaused = true
        // After a failed read the channel keeps the read pending and repeats it for as long as the kernel reports a
        // connection. Turning automatic reads off ends that loop.
        setAutomaticReads(to: false, of: context)
        context.eventLoop.assumeIsolated().scheduleTask(in: Self.pause) {
            self.isPaused = false
            // Setting the option also starts a read. Without automatic reads the channel would accept one batch of
            // connections and then no more.
            self.setAutomaticReads(to: true, of: context)
        }
    }

    private func setAutomaticReads(to value: Bool, of context: ChannelHandlerContext) {
        do {
            try context.channel.syncOptions?.setOption(.autoRead, value: value)
        } catch {
            context.fireErrorCaught(error)
        }
    }

    func read(context: ChannelHandlerContext) {
        if !isPaused { context.read() }
    }
}
