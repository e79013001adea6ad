import Testing

@testable import StageConditions

struct BusWatchTests {
    /// A watch that knows NetworkManager as the connection `:1.5`, which was asked for its properties.
    private func connected() -> (watch: BusWatch, asked: BusCall) {
        var watch = BusWatch()
        let calls = watch.handle(.connected)
        var asked: [BusCall] = []
        for call in calls {
            let isNetwork = call.purpose == .owner(.network)
            asked += watch.handle(.answered(call, isNetwork ? .text(":1.5") : nil))
        }
        return (watch, asked[0])
    }

    private func changed(
        sender: String = ":1.5",
        path: String = "/org/freedesktop/NetworkManager",
        interface: String = "org.freedesktop.NetworkManager",
        _ values: [String: BusValue],
        lost: [String] = []
    ) -> BusEvent {
        .changed(sender: sender, path: path, interface: interface, values, lost: lost)
    }

    /// The calls are computed before the comparison, since `#expect` does not permit mutating calls.
    private func expect(
        _ calls: [BusCall],
        _ expected: [BusCall],
        at location: SourceLocation = #_sourceLocation
    ) {
        #expect(calls == expected, sourceLocation: location)
    }

    private func expectNothing(_ calls: [BusCall], at location: SourceLocation = #_sourceLocation) {
        expect(calls, [], at: location)
    }

    private let metered: [String: BusValue] = ["Metered": .number(1)]

    @Test func aConnectionAsksForSignalsBeforeItAsksForOwners() {
        var watch = BusWatch()
        let calls = watch.handle(.connected)
        #expect(calls.map(\.member).firstIndex(of: "GetNameOwner") == 8)
        #expect(calls.prefix(8).allSatisfy { $0.member == "AddMatch" })
        #expect(calls.dropFirst(8).map(\.argument) == WatchedService.allCases.map(\.rawValue))
        #expect(calls.allSatisfy { $0.destination == "org.freedesktop.DBus" })
    }

    @Test func anOwnerIsAskedByItsConnection() {
        let (watch, asked) = connected()
        #expect(
            asked
                == BusCall(
                    purpose: .properties(.network),
                    destination: ":1.5",
                    path: "/org/freedesktop/NetworkManager",
                    interface: "org.freedesktop.DBus.Properties",
                    member: "GetAll",
                    argument: "org.freedesktop.NetworkManager"
                )
        )
        #expect(!watch.isSettled)
    }

    @Test func onlyKnownPropertiesOfAReplyAreRead() {
        var (watch, asked) = connected()
        let values: [String: BusValue] = ["Metered": .number(1), "Version": .text("1.42")]
        expectNothing(watch.handle(.answered(asked, .properties(values))))
        #expect(watch.readings == [.network: metered])
        #expect(watch.isSettled)
    }

    static let noAnswers: [BusAnswer?] = [
        nil, .refusal("org.freedesktop.DBus.Error.NoReply"), .text("4"),
    ]

    @Test(arguments: noAnswers) func anAnswerThatIsNoneSettlesTheMatter(answer: BusAnswer?) {
        var (watch, asked) = connected()
        expectNothing(watch.handle(.answered(asked, answer)))
        #expect(watch.readings.isEmpty)
        #expect(watch.isSettled)
    }

    @Test func aChangeCountsOnlyFromTheOwner() {
        var (watch, _) = connected()
        let values = metered
        expectNothing(watch.handle(changed(sender: ":1.6", values)))
        expectNothing(watch.handle(changed(sender: "", values)))
        expectNothing(watch.handle(changed(path: "/org/freedesktop/UPower", values)))
        expectNothing(watch.handle(changed(interface: "org.freedesktop.UPower", values)))
        #expect(watch.readings.isEmpty)
        expectNothing(watch.handle(changed(values)))
        #expect(watch.readings == [.network: values])
    }

    @Test func aChangeWithoutItsValueIsAskedFor() {
        var (watch, asked) = connected()
        expectNothing(watch.handle(changed([:], lost: ["Devices"])))
        expect(watch.handle(changed([:], lost: ["Metered", "Devices"])), [asked])
    }

    @Test func aNewOwnerIsAskedAgainAndTheFormerOneIsIgnored() {
        var (watch, asked) = connected()
        _ = watch.handle(changed(metered))
        let name = WatchedService.network.rawValue
        let calls = watch.handle(.owner(name: name, owner: ":1.9"))
        #expect(calls.map(\.destination) == [":1.9"])
        #expect(watch.readings.isEmpty)
        _ = watch.handle(changed(metered))
        _ = watch.handle(.answered(asked, .properties(metered)))
        #expect(watch.readings.isEmpty)
        #expect(!watch.isSettled)
        _ = watch.handle(.answered(calls[0], .properties(metered)))
        #expect(watch.readings == [.network: metered])
        #expect(watch.isSettled)
    }

    @Test func anOwnerThatGoesTakesItsReadingsAlong() {
        var (watch, _) = connected()
        _ = watch.handle(changed(metered))
        let name = WatchedService.network.rawValue
        expectNothing(watch.handle(.owner(name: name, owner: "")))
        #expect(watch.readings.isEmpty)
        #expect(watch.isSettled)
        expectNothing(watch.handle(.owner(name: "org.example.Other", owner: ":1.7")))
    }

    @Test func aBusThatIsLostTakesEverythingAlong() {
        var (watch, asked) = connected()
        _ = watch.handle(changed(metered))
        expectNothing(watch.handle(.lost))
        #expect(watch.readings.isEmpty && !watch.isConnected && !watch.isSettled)
        _ = watch.handle(.answered(asked, .properties(metered)))
        #expect(watch.readings.isEmpty)
    }
}
