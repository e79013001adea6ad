import FoundationEssentials
import StageModel
import Testing

/// The files of `Manifests/`, which publishers and other implementations also read.
@Suite struct ManifestFolderTests {
    @Test func everySampleIsRead() throws {
        let names = try FileManager.default.contentsOfDirectory(atPath: "\(Self.folder)/samples")
        #expect(!names.isEmpty)
        for name in names {
            let bytes = try Self.read("samples/\(name)")
            #expect(throws: Never.self, "\(name)") { try Self.roundTrip(bytes, name) }
        }
    }

    @Test func everyInvalidFileIsRefusedForItsReason() throws {
        let names = try FileManager.default.contentsOfDirectory(atPath: "\(Self.folder)/invalid")
        let expected = try JSONDecoder().decode(
            [String: Expectation].self,
            from: Data(try Self.read("invalid/expected.json"))
        )
        #expect(Set(names) == Set(expected.keys).union(["expected.json"]))
        for (name, expectation) in expected {
            let bytes = try Self.read("invalid/\(name)")
            let error = #expect(throws: ManifestError.self, "\(name)") {
                try Self.roundTrip(bytes, name)
            }
            #expect(error?.description == expectation.error, "\(name)")
        }
    }

    private struct Expectation: Decodable {
        var error: String
    }

    /// Decodes a document, and checks that its encoding decodes to the same value.
    private static func roundTrip(_ bytes: [UInt8], _ name: String) throws(ManifestError) {
        if name.hasPrefix("settings-") {
            _ = try CommandSettings(json: bytes)
        } else if name.hasPrefix("registration-") {
            let registration = try Registration(json: bytes)
            #expect(try Registration(json: registration.json()) == registration)
        } else {
            let manifest = try Manifest(json: bytes)
            #expect(try Manifest(json: manifest.json()) == manifest)
        }
    }

    private static func read(_ name: String) throws -> [UInt8] {
        Array(try Data(contentsOf: URL(filePath: "\(folder)/\(name)")))
    }

    private static let folder =
        #filePath.split(separator: "/").dropLast(3).map { "/\($0)" }.joined() + "/Manifests"
}
