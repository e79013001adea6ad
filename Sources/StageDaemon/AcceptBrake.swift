import Glibc
import NIOCore

/// Lets connections wait for a while when the process or the machine is short of what they need, instead
/// of ending the server or asking the kernel again and again.
final class AcceptBrake: ChannelDuplexHandler {
    typealias InboundIn = any Channel
    typealias OutboundIn = any Channel

    private var isBraking = false

    /// The pause in which no connection is accepted.
    private static let pause = TimeAmount.milliseconds(200)
    /// The errors of accept(2) that pass, or that are of one connection.
    private static let passing = [EMFILE, ENFILE, ENOBUFS, ENOMEM, ECONNABORTED]

    func errorCaught(context: ChannelHandlerContext, error: any Error) {
        guard let error = error as? IOError, Self.passing.contains(error.errnoCode) else {
            context.fireErrorCaught(error)
            return
        }
        guard !isBraking else { return }
        isBraking = true
        // A read that failed stays pending, and the channel repeats it for as long as the kernel reports a
        // connection. Switching automatic reads off ends that.
        setAutomaticReads(to: false, of: context)
        context.eventLoop.assumeIsolated().scheduleTask(in: Self.pause) {
            self.isBraking = false
            // This reads at once. Without automatic reads the channel would accept one batch of connections and
            // then none.
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
        if !isBraking { context.read() }
    }
}
