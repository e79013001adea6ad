import Glibc
import StageTesting
import SystemPackage
import Testing

@testable import StageSystem

struct WakeSignalTests {
    private func isReadable(_ signal: WakeSignal) -> Bool {
        var wish = pollfd(fd: signal.descriptor.rawValue, events: Int16(POLLIN), revents: 0)
        return unsafe Glibc.poll(&wish, 1, 0) == 1
    }

    @Test func aSignalIsReadableWhileItIsRaised() throws {
        let signal = try WakeSignal()
        #expect(!isReadable(signal))
        signal.lower()
        signal.raise()
        signal.raise()
        #expect(isReadable(signal))
        signal.lower()
        #expect(!isReadable(signal))
    }

    @Test func theFieldsOfADeviceEventAreItsParts() {
        let message = Array("change@/devices/AC\0ACTION=change\0SUBSYSTEM=power_supply\0".utf8)
        let fields = DeviceEvents.fields(message[...]).map { String(decoding: $0, as: UTF8.self) }
        #expect(fields == ["change@/devices/AC", "ACTION=change", "SUBSYSTEM=power_supply"])
        #expect(DeviceEvents.fields([]).isEmpty)
    }

    /// Netlink family NETLINK_KOBJECT_UEVENT.
    @Test(.netlink(family: 15)) func listeningToDevicesWaitsForNothing() throws {
        let events = try DeviceEvents()
        let isAffected = events.takeAll(of: "no such class")
        #expect(!isAffected)
    }
}
