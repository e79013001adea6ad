import FoundationEssentials
import StageModel
import StagePublish
import StageTesting
import SystemPackage
import Testing

/// The listings of `docs/porting.md` are those of the examples, which the tests build and run.
@Suite struct PortingGuideTests {
    private static let root = FilePath(#filePath).removingLastComponent().removingLastComponent()
        .removingLastComponent()

    /// The blocks of the guide in a language, in their order.
    private func blocks(_ language: String) throws -> [String] {
        let guide = try text(of: Self.root.appending("docs/porting.md"))
        return guide.split(separator: "\n```\(language)\n").dropFirst().map { part in
            part.split(separator: "```", omittingEmptySubsequences: false).first.map(String.init)
                ?? ""
        }
    }

    /// The sources of the examples that the guide ports.
    private func sources() throws -> [String] {
        try ["PodcastDownloader", "Game", "GameExtension"].flatMap { name in
            let folder = Self.root.appending("Examples").appending(name)
            return try FileManager.default.contentsOfDirectory(atPath: folder.string)
                .map { try text(of: folder.appending($0)) }
        }
    }

    @Test func eachListingIsOfAnExample() throws {
        let sources = try sources()
        let listings = try blocks("swift")
        #expect(listings.count == 15)
        for listing in listings where !listing.hasPrefix("// swift-tools-version") {
            #expect(sources.contains { $0.contains(listing) }, "\(listing)")
        }
    }

    @Test func theProductsOfTheDependencyLinesExist() throws {
        let listing = try #require(try blocks("swift").first)
        let package = try text(of: Self.root.appending("Package.swift"))
        let products = listing.matches(of: #/product\(name: "(\w+)", package: "StagePack"\)/#)
        #expect(
            products.map(\.1) == ["BackgroundTransfer", "BackgroundAssets", "BackgroundAssets"]
        )
        for product in products {
            let declaration = try Regex(#"\.library\(\s*name: "\#(product.1)""#)
            #expect(package.contains(declaration), "\(product.1)")
        }
    }

    @Test func theRegistrationAndTheRecipeAreValid() throws {
        let documents = try blocks("json")
        try #require(documents.count == 2)
        let registration = try Registration(json: Array(documents[0].utf8))
        #expect(registration.application.text == "com.example.game")
        #expect(try Recipe(json: Array(documents[1].utf8)).pack.text == "harbour")
    }
}
