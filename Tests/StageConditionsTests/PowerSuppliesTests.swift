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
        var percentage: Int?
    }

    private static func mains(_ isOnline: Bool?) -> PowerSupplies.Supply {
        PowerSupplies.Supply(type: "Mains", isOnline: isOnline)
    }

    private static func usb(_ isOnline: Bool?) -> PowerSupplies.Supply {
        PowerSupplies.Supply(type: "USB", isOnline: isOnline)
    }

    private static func battery(_ status: String?, _ capacity: Int?) -> PowerSupplies.Supply {
        PowerSupplies.Supply(type: "Battery", status: status, capacity: capacity)
    }

    private static let mouse = PowerSupplies.Supply(
        type: "Battery",
        status: "Discharging",
        capacity: 9,
        isForPeripheral: true
    )

    static let rows = [
        Row(testDescription: "nothing", supplies: []),
        Row(testDescription: "mains", supplies: [mains(true)], isOnBattery: false),
        Row(testDescription: "a socket that nothing is in", supplies: [usb(false)]),
        Row(testDescription: "a board that denies its mains", supplies: [mains(false)]),
        Row(
            testDescription: "mains and a full battery",
            supplies: [mains(true), battery("Full", 100)],
            isOnBattery: false,
            percentage: 100
        ),
        Row(
            testDescription: "unplugged",
            supplies: [mains(false), battery("Discharging", 55)],
            isOnBattery: true,
            percentage: 55
        ),
        Row(
            testDescription: "unplugged, and the battery has not noticed",
            supplies: [mains(false), battery("Full", 100)],
            isOnBattery: true,
            percentage: 100
        ),
        Row(
            testDescription: "mains too weak for the machine",
            supplies: [usb(true), battery("Discharging", 70)],
            isOnBattery: false,
            percentage: 70
        ),
        Row(
            testDescription: "one of two sockets in use",
            supplies: [usb(false), usb(true), battery("Charging", 71)],
            isOnBattery: false,
            percentage: 71
        ),
        Row(
            testDescription: "a battery alone that discharges",
            supplies: [battery("Discharging", 20)],
            isOnBattery: true,
            percentage: 20
        ),
        Row(
            testDescription: "a battery alone that charges",
            supplies: [battery("Charging", 20)],
            isOnBattery: false,
            percentage: 20
        ),
        Row(
            testDescription: "a battery alone that is kept at its charge",
            supplies: [battery("Not charging", 80)],
            isOnBattery: false,
            percentage: 80
        ),
        Row(
            testDescription: "a battery alone that says nothing",
            supplies: [battery("Unknown", nil)]
        ),
        Row(
            testDescription: "two batteries, one of which discharges",
            supplies: [battery("Not charging", 90), battery("Discharging", 31)],
            isOnBattery: true,
            percentage: 60
        ),
        Row(
            testDescription: "an uninterruptible supply that is interrupted",
            supplies: [PowerSupplies.Supply(type: "UPS", status: "Discharging", capacity: 97)],
            isOnBattery: true,
            percentage: 97
        ),
        Row(testDescription: "a mouse", supplies: [mouse]),
        Row(
            testDescription: "mains and a mouse",
            supplies: [mains(true), mouse],
            isOnBattery: false
        ),
        Row(
            testDescription: "a charge beyond all bounds",
            supplies: [battery("Charging", 255)],
            isOnBattery: false
        ),
    ]

    @Test(arguments: rows)
    func suppliesSayWhetherTheBatteryIsUsed(row: Row) {
        let supplies = PowerSupplies(row.supplies)
        #expect(supplies.isOnBattery == row.isOnBattery)
        #expect(supplies.batteryPercentage == row.percentage)
    }

    @Test(.directory) func attributesThatAreMissingOrMakeNoSenseArePassedOver() throws {
        let root = try TemporaryDirectory.required()
        let place = try root.makeDirectory("class").makeDirectory("power_supply")
        let attributes = [
            "AC": ["type": "Mains\n", "online": "1\n"],
            "BAT0": ["type": "Battery\n", "status": "\n", "capacity": "many\n"],
            "BAT1": ["type": "Battery\n", "capacity": "12\n", "scope": "Device\n"],
            "BAT2": ["status": "Discharging\n"],
            "BAT3": ["type": "Battery"],
            "EMPTY": ["type": ""],
        ]
        for (supply, attributes) in attributes {
            let directory = try place.makeDirectory(FilePath(supply))
            for (name, value) in attributes {
                let name = try #require(FilePath.Component(name))
                try directory.write(Array(value.utf8), to: name, durably: false)
            }
        }
        // A directory where there should be an attribute.
        _ = try place.makeDirectory("BAT4").makeDirectory("type")
        #expect(
            PowerSupplies(sysfs: root.path)
                == PowerSupplies([
                    Supply(type: "Mains", isOnline: true),
                    Supply(type: "Battery"),
                    Supply(type: "Battery", capacity: 12, isForPeripheral: true),
                    Supply(type: "Battery"),
                ])
        )
        #expect(PowerSupplies(sysfs: "/nonexistent") == PowerSupplies([]))
    }
}
