import StageSystem
import StageTesting
import SystemPackage
import Testing

@testable import StageConditions

struct PowerSuppliesTests {
    private typealias Supply = PowerSupplies.Supply

    struct Row: CustomTestStringConvertible, Sendable {
        var testDescription: String
        var supplies: [PowerSupplies.Supply]
        var isOnBattery: Bool?
    }

    private static func mains(_ isOnline: Bool?) -> PowerSupplies.Supply {
        PowerSupplies.Supply(type: "Mains", isOnline: isOnline)
    }

    private static func usb(_ isOnline: Bool?) -> PowerSupplies.Supply {
        PowerSupplies.Supply(type: "USB", isOnline: isOnline)
    }

    private static func battery(_ status: String?) -> PowerSupplies.Supply {
        PowerSupplies.Supply(type: "Battery", status: status)
    }

    private static let mouse = PowerSupplies.Supply(
        type: "Battery",
        status: "Discharging",
        isForPeripheral: true
    )

    static let rows = [
        Row(testDescription: "nothing", supplies: []),
        Row(testDescription: "mains", supplies: [mains(true)], isOnBattery: false),
        Row(testDescription: "a socket that nothing is in", supplies: [usb(false)]),
        Row(testDescription: "a board that denies its mains", supplies: [mains(false)]),
        Row(
            testDescription: "mains and a full battery",
            supplies: [mains(true), battery("Full")],
            isOnBattery: false
        ),
        Row(
            testDescription: "unplugged",
            supplies: [mains(false), battery("Discharging")],
            isOnBattery: true
        ),
        Row(
            testDescription: "unplugged, and the battery has not noticed",
            supplies: [mains(false), battery("Full")],
            isOnBattery: true
        ),
        Row(
            testDescription: "mains too weak for the machine",
            supplies: [usb(true), battery("Discharging")],
            isOnBattery: false
        ),
        Row(
            testDescription: "one of two sockets in use",
            supplies: [usb(false), usb(true), battery("Charging")],
            isOnBattery: false
        ),
        Row(
            testDescription: "a battery alone that discharges",
            supplies: [battery("Discharging")],
            isOnBattery: true
        ),
        Row(
            testDescription: "a battery alone that charges",
            supplies: [battery("Charging")],
            isOnBattery: false
        ),
        Row(
            testDescription: "a battery alone that is kept at its charge",
            supplies: [battery("Not charging")],
            isOnBattery: false
        ),
        Row(
            testDescription: "a battery alone that says nothing",
            supplies: [battery("Unknown")]
        ),
        Row(
            testDescription: "two batteries, one of which discharges",
            supplies: [battery("Not charging"), battery("Discharging")],
            isOnBattery: true
        ),
        Row(
            testDescription: "an uninterruptible supply that is interrupted",
            supplies: [PowerSupplies.Supply(type: "UPS", status: "Discharging")],
            isOnBattery: true
        ),
        Row(testDescription: "a mouse", supplies: [mouse]),
        Row(
            testDescription: "mains and a mouse",
            supplies: [mains(true), mouse],
            isOnBattery: false
        ),
    ]

    @Test(arguments: rows)
    func suppliesSayWhetherTheBatteryIsUsed(row: Row) {
        let supplies = PowerSupplies(row.supplies)
        #expect(supplies.isOnBattery == row.isOnBattery)
    }

    @Test(.directory) func attributesThatAreMissingOrMakeNoSenseArePassedOver() throws {
        let root = try TemporaryDirectory.required()
        let folder = try root.makeDirectory("class").makeDirectory("power_supply")
        let attributes = [
            "AC": ["type": "Mains\n", "online": "1\n"],
            "BAT0": ["type": "Battery\n", "status": "\n"],
            "BAT1": ["type": "Battery\n", "scope": "Device\n"],
            "BAT2": ["status": "Discharging\n"],
            "BAT3": ["type": "Battery"],
            "EMPTY": ["type": ""],
        ]
        for (supply, attributes) in attributes {
            let directory = try folder.makeDirectory(FilePath(supply))
            for (name, value) in attributes {
                let name = try #require(FilePath.Component(name))
                try directory.write(Array(value.utf8), to: name, durably: false)
            }
        }
        // A directory instead of an attribute file.
        _ = try folder.makeDirectory("BAT4").makeDirectory("type")
        #expect(
            PowerSupplies(sysfs: root.path)
                == PowerSupplies([
                    Supply(type: "Mains", isOnline: true),
                    Supply(type: "Battery"),
                    Supply(type: "Battery", isForPeripheral: true),
                    Supply(type: "Battery"),
                ])
        )
        #expect(PowerSupplies(sysfs: "/nonexistent") == PowerSupplies([]))
    }
}
